"""`rlsys audit`: what a run directory proves of itself, by the digests of its journal."""
