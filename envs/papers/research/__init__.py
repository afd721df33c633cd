"""ReSearch (arXiv 2503.19470): the protocol and the reward.

The rest is shared: questions are played in `envs/worlds/search.py`, and the baselines are `direct` and `retrieval` of
`envs/protocols`.
"""
