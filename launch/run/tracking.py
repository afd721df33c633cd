"""wandb: offline without a key, online with one. The driver is its only writer."""

from __future__ import annotations

import logging
import netrc
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsys.config import WandbConfig

log = logging.getLogger("rlsys.tracking")
FINISH_DEADLINE_S = 15.0


def wandb_mode(config: WandbConfig) -> str:
    """`auto` resolved: WANDB_MODE if set, else online where a key is configured."""
    if config.mode != "auto":
        return config.mode
    if os.environ.get("WANDB_MODE"):
        return os.environ["WANDB_MODE"]
    return "online" if os.environ.get("WANDB_API_KEY") or _key_in_netrc() else "offline"


def _key_in_netrc() -> bool:
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (FileNotFoundError, netrc.NetrcParseError, OSError):
        return False


class Tracker:
    """A fault boundary: tracking that breaks is reported once and never stops a run."""

    def __init__(self, config: WandbConfig, run_dir: Path, name: str, resolved: Mapping[str, Any]) -> None:
        self._run: Any = None
        mode = wandb_mode(config)
        if mode == "disabled":
            return
        try:
            import wandb

            self._run = wandb.init(
                project=config.project,
                id=_run_id(run_dir),
                name=name,
                mode=mode,  # type: ignore[arg-type]
                dir=str(run_dir),
                config=dict(resolved),
                resume="allow" if mode == "online" else None,
                settings=wandb.Settings(silent=True, console="off", init_timeout=60, x_disable_stats=True),
            )
            self._run.define_metric("*", step_metric="step")
        except Exception as error:
            log.warning("wandb is off for this run: %s", error)

    def log(self, row: Mapping[str, Any]) -> None:
        if self._run is not None:
            try:
                self._run.log({key: value for key, value in row.items() if isinstance(value, (int, float))})
            except Exception as error:
                log.warning("wandb stopped taking rows: %s", error)
                self._run = None

    def finish(self) -> None:
        """Ends wandb's service too, with the processes of the run. Not for ever: the network may be gone."""
        if self._run is None:
            return
        thread = threading.Thread(target=self._finish, daemon=True)
        thread.start()
        thread.join(FINISH_DEADLINE_S)
        if thread.is_alive():
            log.warning("wandb did not finish within %g s: `wandb sync` can upload the rest", FINISH_DEADLINE_S)
        self._run = None

    def _finish(self) -> None:
        try:
            import wandb

            self._run.finish()
            wandb.teardown()
        except Exception as error:
            log.warning("wandb did not finish: %s", error)


def _run_id(run_dir: Path) -> str:
    """The same for every process that continues this run directory."""
    path = run_dir / "wandb_id"
    if not path.exists():
        path.write_text(os.urandom(4).hex())
    return path.read_text()
