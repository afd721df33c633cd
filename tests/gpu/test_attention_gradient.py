"""The backward pass of each attention that runs on GPUs, in the numbers that they train with."""

from tests.device import same_tests
from tests.e2e import test_attention_gradient

globals().update(same_tests(test_attention_gradient))
