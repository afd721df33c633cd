"""SWiRL (arXiv 2504.04736): two protocols, the reward of each step, and the states of trajectories as tasks.

Its questions are played in `envs/worlds/search.py`, its mathematics in `envs/worlds/calculator.py`.
"""
