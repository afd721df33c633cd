"""What runs in the processes of agents and of the one that starts them: the standard library alone."""
