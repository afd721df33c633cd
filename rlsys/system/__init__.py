"""What several packages need beside the core: kernel names, sockets, deadlines, devices, a lost node in Ray's words."""
