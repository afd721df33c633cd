"""One rank, and two over NCCL, give the gradient of a plain loop, at every ZeRO stage."""

from tests.device import same_tests
from tests.e2e import test_gradient

globals().update(same_tests(test_gradient))
