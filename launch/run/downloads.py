"""Models that are named as the hub names them, fetched to each node once before anything starts there.

The deadlines of engines and ranks are for reading what lies on the node: three engines that each download 65 GB within
their start would be late, however much time they had.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from launch.checks import hub
from launch.checks.starts import size_of
from rlsys.deadlines import download_s
from rlsys.errors import BadInput, describe_error

SMALL = ("*.json", "*.model", "*.txt", "*.jinja", "*.py")
WEIGHTS = ("*.safetensors",), ("*.bin",)  # the second where there is none of the first
LEFT_OUT = ("original/*", "consolidated*")  # the same weights once more, in another form
UNKNOWN = 100_000_000_000  # bytes of a model whose size nothing says


def from_hub(models: Iterable[str]) -> tuple[str, ...]:
    """Those that are no folders, each once; none where nothing may be downloaded."""
    named = (model for model in models if not model.startswith((".", "/", "~")) and model.count("/") <= 1)
    found = dict.fromkeys(model for model in named if not Path(model).is_dir())
    return () if hub.is_offline() else tuple(found)


def patience_s(models: Iterable[str]) -> float:
    return sum(download_s(size_of(model) or UNKNOWN).value for model in models)


def download(models: Iterable[str]) -> None:
    """On a node: what is not there yet. Its connections have deadlines of their own. Raises BadInput."""
    from huggingface_hub import snapshot_download

    for model in models:
        try:
            for weights in WEIGHTS:
                wanted = [*SMALL, *weights]
                folder = snapshot_download(model, allow_patterns=wanted, ignore_patterns=list(LEFT_OUT))
                if any(Path(folder).glob(weights[0])):
                    break
        except Exception as error:  # fault boundary: the network, the disk, the hub's own refusals
            raise BadInput(f"the download failed: {describe_error(error)}", where=f"model {model!r}") from error
