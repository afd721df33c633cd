"""vLLM on a GPU: its model runner for GPUs, CUDA graphs and reloads under them, two GPUs for one model, deaths."""

from tests.device import same_tests
from tests.e2e import test_engine_contract

globals().update(same_tests(test_engine_contract))
