"""Graph problems in words: connectivity and shortest path, as in NLGift and Graph-RL. Pure functions of text."""
