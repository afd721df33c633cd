"""One training run: its loop (`stages/rl_loop.py`), parts, life cycle, evaluations, checkpoints, and what it says."""
