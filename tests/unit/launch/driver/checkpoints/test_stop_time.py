"""The time of a stop follows from what is copied and written, and its deadline from that."""

import pytest

from launch.checks import model_size
from launch.config.compose import compose
from launch.driver.checkpoints.stop_time import (
    LEAST_S,
    UNKNOWN_S,
    StopTime,
    advise_stop,
    describe_stop,
    longest_stop_time,
    stop_deadline_s,
    stop_time,
)
from rlsys.system.device import DEVICES

# (parameters, bytes of a checkpoint, ranks, tokens of a row, FLOP/s of a rank): by the table of docs/gpu.md
SIZES = {
    "7e9 on 8 GPUs": (7.62e9, 16 * 7.62e9, 5, 16384, 1e14),
    "32e9 on 32 GPUs": (32.8e9, 14 * 32.8e9, 20, 16384, 1e14),
    "SmolLM2 on two cores": (135e6, 20 * 135e6, 1, 4096, 6e10),
}
NEEDED = {
    "7e9 on 8 GPUs": (10, 24, 152, 380),
    "32e9 on 32 GPUs": (43, 23, 574, 1280),
    "SmolLM2 on two cores": (74, 3, 3, 160),
}


def time_of(model: str) -> StopTime:
    count, written, ranks, tokens, flops = SIZES[model]
    return stop_time(
        parameters=int(count), checkpoint_bytes=int(written), ranks=ranks, row_tokens=tokens, rank_flops=flops
    )


@pytest.mark.parametrize("model", SIZES)
def test_a_stop_is_a_row_a_copy_and_its_writing_and_gets_twice_as_long(model: str) -> None:
    estimate, (row, copy, write, deadline) = time_of(model), NEEDED[model]
    assert (round(estimate.row_s), round(estimate.copy_s), round(estimate.write_s)) == (row, copy, write)
    assert estimate.deadline_s == deadline and estimate.needed_s == pytest.approx(row + copy + write, abs=2)


def test_a_small_model_has_half_a_minute() -> None:
    config = compose("quickstart", [])
    estimate = longest_stop_time(config, DEVICES["cpu"])
    assert estimate is not None and estimate.needed_s < 3
    assert stop_deadline_s(config, DEVICES["cpu"]) == LEAST_S and advise_stop(config, DEVICES["cpu"]) is None


def test_the_key_is_followed_and_too_short_a_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_size, "parameters", lambda recipe: 7_620_000_000)

    def advised(*overrides: str) -> tuple[float, str]:
        config, device = compose("quickstart", ["learner.ranks=5", *overrides]), DEVICES["cuda"]
        return stop_deadline_s(config, device), advise_stop(config, device) or ""

    assert advised() == (380.0, "a stop needs about 187 s (a row 10, copying 24, writing 152), and has 380")
    limit, advice = advised("checkpoint.stop_deadline_s=30")
    assert limit == 30.0 and "raise checkpoint.stop_deadline_s" in advice and "380" in advice
    assert "raise" not in advised("checkpoint.stop_deadline_s=300")[1]
    assert "first of its 4 optimizer steps" in advised("algorithm.name=ppo", "algorithm.epochs=4")[1]


def test_an_update_that_is_past_its_first_optimizer_step_is_finished_within_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """32 groups of 8 answers of 16,384 tokens: 4.2 million, of which three quarters are left after the first of four
    steps. 8 x 7.62e9 x 3,145,728 / 1e14 / 5 ranks are 383.5 s; and 75 % of an update of 400 s are 300."""
    monkeypatch.setattr(model_size, "parameters", lambda recipe: 7_620_000_000)
    sizes = ["loop.groups_per_step=32", "loop.group_size=8", "engine.max_model_len=16384", "learner.ranks=5"]

    def rest(*overrides: str) -> float:
        estimate = longest_stop_time(compose("quickstart", [*sizes, *overrides]), DEVICES["cuda"])
        assert estimate is not None
        return estimate.rest_s

    assert rest() == 0.0
    assert rest("algorithm.minibatches=4") == pytest.approx(383.5, abs=0.1)
    assert rest("algorithm.epochs=4", "learner.update_timeout_s=7200") == pytest.approx(
        4 * 383.5, abs=0.4
    )  # each epoch trains all of them
    assert rest("algorithm.minibatches=4", "learner.update_timeout_s=400") == 300.0
    config = compose("quickstart", [*sizes, "algorithm.minibatches=4"])
    assert stop_deadline_s(config, DEVICES["cuda"]) > 2 * 383.5
    assert "the rest of an update 384" in describe_stop(config, DEVICES["cuda"])


def test_of_a_model_whose_size_is_not_known_the_deadline_is_that_of_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_size, "parameters", lambda recipe: None)
    config = compose("quickstart", [])
    assert stop_deadline_s(config, DEVICES["cpu"]) == UNKNOWN_S
    assert describe_stop(config, DEVICES["cpu"]) == "a stop has 300 s" and advise_stop(config, DEVICES["cpu"]) is None
