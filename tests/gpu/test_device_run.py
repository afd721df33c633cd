"""Twenty steps of the whole system, through the death of an engine."""

from tests.device import same_tests
from tests.e2e import test_device_run

globals().update(same_tests(test_device_run))
