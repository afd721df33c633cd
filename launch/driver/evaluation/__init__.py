"""Evaluations: sets of held-out tasks, how they are played, and how two results are compared."""
