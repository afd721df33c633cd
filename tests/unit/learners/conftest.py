"""Matrices this small are slower on two threads than on one, and much slower on a busy machine."""

import torch

torch.set_num_threads(1)
