"""Logits in float32 from bfloat16 weights, in the engine and in the learner. Prints both gaps."""

from tests.device import same_tests
from tests.e2e import test_fp32_head

globals().update(same_tests(test_fp32_head))
