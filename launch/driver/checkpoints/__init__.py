"""Checkpoints: what is saved, its digests, which one is the best, and how long a stop takes."""
