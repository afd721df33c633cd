"""One run, from its parts to its exit code: Ray, actors, weights, checkpoints, the run directory."""
