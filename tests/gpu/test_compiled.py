"""A compiled policy, by torch's compiler for GPUs."""

from tests.device import same_tests
from tests.e2e import test_compiled

globals().update(same_tests(test_compiled))
