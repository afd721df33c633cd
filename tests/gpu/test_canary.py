"""The start-up canary in bfloat16: a healthy engine passes, one that keeps old weights does not. Prints the gap."""

from tests.device import same_tests
from tests.e2e import test_canary

globals().update(same_tests(test_canary))
