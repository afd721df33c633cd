"""`rlsys merge`: a checkpoint with an adapter as a model of its own, for programs that load no adapters."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from launch.checks import preflight
from launch.driver.observe.progress import Progress
from rlsys.adapters import read_adapter
from rlsys.errors import BadInput, require
from rlsys.files import files_or_bad_input

HELP = "merge the adapter of a checkpoint into its model: summed in float32, rounded once to the model's number format"
EXAMPLES = """examples:
  rlsys merge --checkpoint runs/quickstart --output merged                    the newest checkpoint of a run
  rlsys merge --checkpoint runs/quickstart@best --output merged --dtype float32
"""


def add(parser: argparse.ArgumentParser) -> None:
    help_text = "run directory, RUN_DIR@best, checkpoint, or the folder of an adapter"
    parser.add_argument("--checkpoint", metavar="DIR", required=True, help=help_text)
    parser.add_argument("--output", metavar="DIR", required=True, help="folder to write; it must not exist yet")
    kinds = "number format of the merged weights (default: that of the model under the adapter)"
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default=None, help=kinds)


def run(options: argparse.Namespace) -> int:
    from launch.driver.run.engines import check_digests, resolve_folder  # Ray behind it
    from learners.merging import merge_folder  # torch and transformers behind it

    folder, output = Path(resolve_folder(options.checkpoint)), Path(options.output)
    adapter = read_adapter(folder)
    if adapter is None:
        raise BadInput(
            "no adapter in it",
            key="--checkpoint",
            found=str(folder),
            expected="one that a stage with model.lora.rank trained",
        )
    require(not output.exists(), "--output", options.output, "a folder that does not exist yet")
    preflight.check_model(str(folder), learner=False, key="--checkpoint")
    check_digests(folder.parent)
    draft = output.with_name(f".{output.name}.tmp")
    with files_or_bad_input():
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)

    try:
        with Progress() as progress:
            progress.doing(f"merging {folder} into {adapter.base}")
            lost = merge_folder(folder, adapter, draft, dtype=options.dtype)
            draft.rename(output)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    print(f"rlsys: {output}: {adapter.base} with the adapter of {folder}; rounding took {lost:.1%} of the update")
    return 0
