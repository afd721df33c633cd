"""What stands in the environment before Ray starts."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import services

from launch.driver.run import cluster
from rlsys.config.cluster import ClusterConfig
from rlsys.errors import BadInput, RunFailed


@pytest.mark.parametrize("kind", [RuntimeError, Exception])  # the second: of a node that starts too slowly
def test_ray_prints_no_errors_of_calls_that_were_given_up(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop, and ranks that are started again, leave hundreds of them."""

    def init(**_: Any) -> None:
        raise kind("not here: it timed out during startup")

    for name in ("RAY_IGNORE_UNHANDLED_ERRORS", "RAY_worker_niceness", cluster.cleanup.VARIABLE, "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # put back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(RunFailed, match="not here.* cores.*: the same command tries again"):
        cluster.connect(ClusterConfig(device="cpu"), lambda _: [])
    assert os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] == "1"
    assert os.environ["RAY_worker_niceness"] == "0"  # noqa: SIM112 - Ray's spelling; a busy program beside the run does not stop it


def test_the_address_of_a_cluster_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray keeps the last one in a file, and would try it for minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        stale = f"127.0.0.1:{free.getsockname()[1]}"  # bound, and nothing listens
        for name in (cluster.cleanup.VARIABLE, "RAY_ADDRESS"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        monkeypatch.setattr(services, "find_gcs_addresses", set)
        monkeypatch.setattr(services, "find_bootstrap_address", lambda _: stale)
        with pytest.raises(BadInput, match=stale):
            cluster.connect(ClusterConfig(address="auto"), lambda _: [])
        monkeypatch.setattr(services, "find_bootstrap_address", lambda _: None)
        with pytest.raises(BadInput, match="no Ray cluster runs on this node"):
            cluster.connect(ClusterConfig(address="auto"), lambda _: [])


def test_rays_token_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster.close_token()  # there is none
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    cluster.close_token()
    assert token.stat().st_mode & 0o777 == 0o600
