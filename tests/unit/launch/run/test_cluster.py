"""What stands in the environment before Ray starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import ray

from launch.run import cluster
from rlsys.config.cluster import ClusterConfig
from rlsys.errors import RunFailed


@pytest.mark.parametrize("kind", [RuntimeError, Exception])  # the second: of a node that starts too slowly
def test_ray_prints_no_errors_of_calls_that_were_given_up(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop, and ranks that are started again, leave hundreds of them."""

    def init(**_: Any) -> None:
        raise kind("not here")

    for name in ("RAY_IGNORE_UNHANDLED_ERRORS", cluster.cleanup.VARIABLE, "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # put back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(RunFailed, match="not here"):
        cluster.connect(ClusterConfig(device="cpu"), lambda _: [])
    assert os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] == "1"


def test_rays_token_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster.close_token()  # there is none
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    cluster.close_token()
    assert token.stat().st_mode & 0o777 == 0o600
