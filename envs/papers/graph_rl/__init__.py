"""Graph-RL (arXiv 2506.00845): graphs with verified steps, and the real tasks that it is tested on.

`summary.py` reads the answers of all real tasks; ProScript and Blocksworld have their own rewards too.
"""
