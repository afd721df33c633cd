"""`rlsys chaos`: a run whose parts are killed, hung or cut off on purpose, and what became of it."""
