"""`rlsys doctor`: what probes report of each node, and the looks that judge it."""
