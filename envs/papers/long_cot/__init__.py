"""Long CoT (arXiv 2502.03373): the reward of lengths, chains of thought from actions, and pairs that are tried.

Its problems are played in `envs/worlds/questions.py`; its verifier is `envs/rewards/maths`, or a judge.
"""
