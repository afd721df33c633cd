"""`rlsys score`: rewards of answers that lie in a file."""
