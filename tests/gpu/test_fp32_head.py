"""Logits in float32 from bfloat16 weights: the engine's head and the learner's give the same ones."""

from tests.device import same_tests
from tests.e2e import test_fp32_head

globals().update(same_tests(test_fp32_head))
