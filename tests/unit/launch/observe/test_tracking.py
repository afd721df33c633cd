"""What goes to wandb, without wandb: nested configuration, and which episodes stand in the table."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from launch.config.compose import compose, to_yaml
from launch.observe.tracking import Gauges, cells, flatten_config, resolve_listing, spread, wandb_mode
from rlsys.config.output import WandbConfig
from rlsys.types import EpisodeEnd, Failure, FailureKind, Message, Reward, Task, Timings, Trajectory
from tests.refused import refused


def episode(value: float | None) -> Trajectory:
    reward = Failure(kind=FailureKind.INFRA, where="w", detail="d") if value is None else Reward(value=value, parts={})
    return Trajectory(
        task=Task(task_id="t", question=""),
        sibling=0,
        turns=(),
        messages=(Message(role="user", content="q"), Message(role="assistant", content="a" * 20_000)),
        end=EpisodeEnd.ANSWERED,
        reward=reward,
        timings=Timings(generate_s=0, tool_s=0, score_s=0),
        num_prompt=1,
    )


@pytest.mark.parametrize(
    ("rewards", "count", "expected"),
    [
        ([3, 1, 2, 0, 4], 3, [0, 2, 4]),
        ([3, 1, 2, 0, 4], 1, [0]),
        ([3, 1, 2, 0, 4], 9, [0, 1, 2, 3, 4]),
        ([1, 1, 1], 2, [1, 1]),
        ([None, 5], 2, [5]),
        ([None], 2, []),
        ([], 2, []),
    ],
)
def test_the_table_goes_from_the_lowest_reward_to_the_highest(
    rewards: list[float | None], count: int, expected: list[float]
) -> None:
    chosen = spread([episode(value).reward for value in rewards], count)
    assert [rewards[place] for place in chosen] == expected


def test_a_cell_is_bounded() -> None:
    _, prompt, said, *_ = cells(episode(1.0))
    assert prompt == "user: q" and len(said) == 10_000


def test_the_configuration_is_nested_and_its_stages_have_names() -> None:
    config = flatten_config(to_yaml(compose("quickstart", ["learner.lr=3e-5", "wandb.tags=[a,b]"])))
    assert config["learner"]["lr"] == 3e-5 and config["env"]["name"] == "calculator"
    assert list(config["wandb"]["tags"]) == ["a", "b"]
    assert set(config["stages"]) == {"sft", "rl"} and config["stages"]["sft"]["steps"] == 200


def test_keys_of_wandb_are_checked_and_read_back(tmp_path: Path) -> None:
    keys = ["wandb.group=g", "wandb.name=n", "wandb.entity=e", "wandb.notes=x y", "wandb.tags=[a]", "wandb.samples=0"]
    run = compose("quickstart", keys)
    (tmp_path / "config.yaml").write_text(to_yaml(run))
    assert compose(str(tmp_path / "config.yaml"), []) == run
    with refused("wandb.samples_every", found=0):
        compose("quickstart", ["wandb.samples_every=0"])


def test_auto_is_offline_without_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    assert wandb_mode(WandbConfig()) == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "k")
    assert wandb_mode(WandbConfig()) == "online"


def test_wandbs_variables_hold_where_the_configuration_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is what wandb fills in from its own variables."""
    for variable in ("WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(variable, raising=False)
    ours = resolve_listing(WandbConfig(), "quickstart seed 3")
    assert (ours["project"], ours["name"]) == ("rlsys", "quickstart seed 3")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_NAME", "x")
    assert set(resolve_listing(WandbConfig(), "quickstart seed 3").values()) == {None}
    said = WandbConfig(project="p", name="n", entity="e", group="g", tags=("a",), notes="t")
    expected = {"project": "p", "name": "n", "entity": "e", "group": "g", "tags": ["a"], "notes": "t"}
    assert resolve_listing(said, "quickstart seed 3") == expected


class Gauge:
    made: dict[str, list[tuple[float, dict[str, str]]]]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description and tag_keys == ("run", "stage") and name not in self.made
        self._values = self.made.setdefault(name, [])

    def set(self, value: float, tags: dict[str, str]) -> None:
        self._values.append((value, tags))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    Gauge.made = {}
    module: Any = ModuleType("ray.util.metrics")
    module.Gauge = Gauge
    monkeypatch.setitem(sys.modules, "ray.util.metrics", module)
    return Gauge.made


def test_a_row_sets_its_gauges(made: dict[str, Any]) -> None:
    gauges = Gauges("q")
    gauges.set({"step": 1, "stage": "sft", "tokens/trained_per_s": 10.0})
    gauges.set({"step": 2, "stage": "rl", "reward/mean": 0.5, "reward/max": 1.0, "tokens/trained_per_s": 20.0})
    rl, sft = ({"run": "q", "stage": stage} for stage in ("rl", "sft"))
    assert made == {
        "rlsys_reward_mean": [(0.5, rl)],
        "rlsys_tokens_trained_per_second": [(10.0, sft), (20.0, rl)],
    }


def test_a_ray_that_takes_none_is_said_once(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    gauges = Gauges("q")
    sys.modules["ray.util.metrics"].Gauge = None
    for _ in range(3):
        gauges.set({"reward/mean": 0.5})
    assert [record.getMessage() for record in caplog.records] == [
        "Ray takes no metrics: 'NoneType' object is not callable"
    ]
