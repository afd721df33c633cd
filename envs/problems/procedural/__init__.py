"""The families of reasoning-gym, asked in a process of their own."""
