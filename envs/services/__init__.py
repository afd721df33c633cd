"""What environments and rewards ask over HTTP: clients with deadlines, and the servers of the project itself."""
