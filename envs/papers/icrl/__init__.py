"""ICRL (arXiv 2603.08068): the protocol of its searches, and the reward of both halves.

The rest is shared: questions are played in `envs/worlds/search.py`, the code half, by ReTool's protocol, in
`envs/worlds/python.py`. Examples in prompts are those of `envs/tasks/prompts.py`.
"""
