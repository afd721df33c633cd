"""What several packages need besides the core: kernel names, sockets, deadlines, devices, lost nodes in Ray's words."""
