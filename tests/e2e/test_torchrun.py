"""The learner without Ray: docs/by_hand.py under the real torchrun, against a plain loop."""

import math
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from tests.e2e.learner_cases import free_port, save_model
from tests.e2e.runs import ROOT

TEXTS = [[5, 6, 7, 8, 9], [10, 11, 12], [13, 14]]  # as in the file


def plain(path: str) -> tuple[float, float]:
    """(loss, norm of its gradient) of the mean over all tokens but each text's first."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    nlls = [F.cross_entropy(model(torch.tensor([ids])).logits[0, :-1], torch.tensor(ids[1:]), reduction="none")
            for ids in TEXTS]  # fmt: skip
    loss = torch.cat(nlls).mean()
    loss.backward()
    squares = [parameter.grad.double().square().sum() for parameter in model.parameters()]
    return loss.item(), math.sqrt(sum(squares))


def test_the_file_of_the_docs_trains_under_torchrun(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    process = subprocess.Popen(
        [*torchrun, str(ROOT / "docs" / "by_hand.py"), path],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=180)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the ranks with it
    assert process.returncode == 0, errors[-3000:]
    steps = [tuple(map(float, match)) for match in re.findall(r"loss ([\d.]+), gradient ([\d.]+)", output)]
    assert steps[0] == pytest.approx(plain(path), rel=1e-5)
    losses = [loss for loss, _ in steps]
    assert len(losses) == 3 and losses == sorted(losses, reverse=True)
