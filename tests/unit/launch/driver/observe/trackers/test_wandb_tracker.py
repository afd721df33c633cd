"""What wandb is asked for, without wandb."""

from pathlib import Path

import pytest

from launch.config.compose import compose, to_yaml
from launch.driver.observe.trackers.wandb_tracker import describe_upload, resolve_listing, wandb_mode
from rlsys.config.output import WandbConfig
from tests.refused import refused


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
    config = WandbConfig(project="p", name="n", entity="e", group="g", tags=("a",), notes="t")
    expected = {"project": "p", "name": "n", "entity": "e", "group": "g", "tags": ["a"], "notes": "t"}
    assert resolve_listing(config, "quickstart seed 3") == expected


def test_an_upload_is_announced_with_all_that_it_holds() -> None:
    says = describe_upload(WandbConfig(samples=2, samples_every=5), "https://host/r", "wrap")
    assert all(part in says for part in ("https://host/r", "2 sample episodes", "every 5 steps", "wandb.mode=offline"))
    assert "sample" not in describe_upload(WandbConfig(samples=0), "u", "off")
