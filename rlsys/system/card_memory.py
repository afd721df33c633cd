"""What NVIDIA's tool says of this machine's cards, and who holds their memory: asked without touching a card."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rlsys.errors import BadInput, RunFailed
from rlsys.system.cards import VISIBLE
from rlsys.system.orphans import VARIABLE

SMI_S = 10.0  # a driver that is being loaded takes a few seconds to answer
GPUS = (
    "--query-gpu=index,uuid,name,memory.total,memory.reserved,memory.used,mig.mode.current,driver_version,"
    "ecc.errors.uncorrected.volatile.total"
)
FEWER = "--query-gpu=index,uuid,name,memory.total,driver_version"  # for a driver that fails at a field of the others
PROCESSES = "--query-compute-apps=gpu_uuid,pid,used_memory,process_name"
# Of a card, in others' hands: engines leave a tenth of it free (`engine.gpu_memory_utilization`), and a desktop or an
# empty context, half a GB of 80, is in nobody's way.
MUCH = 0.05
CARD_ERRORS = ("OutOfMemoryError", "AcceleratorError")  # torch's
REFUSALS = (BadInput, ValueError, NotImplementedError)  # of what was asked for, whoever holds a card


class DriverHangs(Exception):
    """NVIDIA's tool has not answered in time."""


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    name: str
    mib: int | None  # None: not said, as in some containers


@dataclass(frozen=True, slots=True)
class Card:
    """Card(index="0", uuid="GPU-5d0..", name="NVIDIA H100 80GB HBM3", mib=81008, used=61440, holders=(...)). Sizes in
    MiB, 0 where they are not said, as of a card that has the host's memory."""

    index: str
    uuid: str
    name: str
    mib: int  # that CUDA can give: without `reserved`
    used: int
    holders: tuple[Holder, ...] = ()
    parted: bool = False  # into instances (MIG), each of which has less
    reserved: int = 0  # that the driver keeps; older ones do not say it
    driver: str = ""  # its release
    ecc_errors: int = 0  # that were not corrected


def read_cards(gpus: str, processes: str) -> list[Card]:
    """The lines that `nvidia-smi` answers to GPUS and PROCESSES with. A line in another form is left out."""
    holders: dict[str, list[Holder]] = {}
    for line in processes.splitlines():
        parts = [part.strip() for part in line.split(",", 3)]
        if len(parts) == 4 and parts[1].isdigit():
            holder = Holder(int(parts[1]), Path(parts[3]).name, int(parts[2]) if parts[2].isdigit() else None)
            holders.setdefault(parts[0], []).append(holder)
    cards = []
    for line in gpus.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 9:
            index, uuid, name, mig, driver = *parts[:3], *parts[6:8]
            total, reserved, used, errors = (int(part) if part.isdigit() else 0 for part in (*parts[3:6], parts[8]))
            cards.append(
                Card(
                    index, uuid, name, max(0, total - reserved), used, holders=tuple(holders.get(uuid, ())),
                    parted=mig == "Enabled", reserved=reserved, driver=driver, ecc_errors=errors,
                )
            )  # fmt: skip
    return cards


def cards_of_machine() -> list[Card]:
    """As `ask_cards`; none where the driver hangs."""
    with suppress(DriverHangs):
        return ask_cards()
    return []


def ask_cards(deadline_s: float = SMI_S, *, holders: bool = True) -> list[Card]:
    """All of them, whatever this process sees; none where NVIDIA's tool is not there or fails. Raises DriverHangs.

    holders: whether it is asked for the processes on them, too.
    """
    gpus, processes = _query_smi(GPUS, deadline_s) or _fill_fields(_query_smi(FEWER, deadline_s)), ""
    with suppress(DriverHangs):  # cards whose holders are not known
        processes = _query_smi(PROCESSES, deadline_s) if gpus and holders else ""
    return read_cards(gpus, processes)


def _fill_fields(gpus: str) -> str:
    """Lines that answer FEWER as those that answer GPUS, without what is not known."""
    parts = [line.rsplit(",", 1) for line in gpus.splitlines() if "," in line]
    return "\n".join(f"{known}, , , , {driver}, " for known, driver in parts)


def run_smi(query: str, form: str, deadline_s: float) -> subprocess.CompletedProcess[str]:
    """form: as `--format` takes it. Raises OSError where NVIDIA's tool is not there, and DriverHangs."""
    command = ("nvidia-smi", query, f"--format={form}")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        answer, errors = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()  # and not waited for: one that hangs in the driver cannot be ended
        text = f"nvidia-smi gave no answer within {deadline_s:g} s: the driver of the card hangs perhaps"
        raise DriverHangs(text) from None
    return subprocess.CompletedProcess(command, process.returncode, answer, errors)


def _query_smi(query: str, deadline_s: float) -> str:
    try:
        answer = run_smi(query, "csv,noheader,nounits", deadline_s)
    except OSError:
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def of_this_run(pid: int) -> bool:
    """Whether a process bears the tag of the run that this one belongs to."""
    if pid == os.getpid():
        return True
    tag = os.environ.get(VARIABLE)
    try:
        return bool(tag) and f"{VARIABLE}={tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, of another container, or gone
        return False


def describe_held(cards: Sequence[Card], ours: Callable[[int], bool] = of_this_run) -> list[str]:
    """A line for each card of which others hold more than MUCH, with who holds how much."""
    lines = []
    for card in cards:
        foreign = [holder for holder in card.holders if not ours(holder.pid)]
        own_mib = sum(holder.mib or 0 for holder in card.holders if holder not in foreign)
        foreign_mib = card.used - own_mib
        if foreign_mib <= MUCH * card.mib:
            continue
        unnamed = foreign_mib - sum(holder.mib or 0 for holder in foreign)
        parts = [f"{holder.name} (pid {holder.pid}) {_size(holder.mib)}" for holder in foreign]
        if unnamed > MUCH * card.mib and all(holder.mib is not None for holder in foreign):
            parts.append(f"{_size(unnamed)} of a process that nvidia-smi does not name, of another container perhaps")
        summary = f"others hold {foreign_mib / 1024:.1f} of {card.mib / 1024:.1f} GiB"
        lines.append(f"GPU {card.index} ({card.name}): {summary}: {', '.join(parts)}")
    return lines


def _size(mib: int | None) -> str:
    return "of unknown size" if mib is None else f"{mib / 1024:.1f} GiB"


def visible_cards(cards: Sequence[Card]) -> list[Card]:
    """Those of this process: all without the variable, which names them by their number or the beginning of their
    UUID; none where it names instances of a card (MIG), of which the tool's numbers are not."""
    if VISIBLE not in os.environ:
        return list(cards)
    names = [name.strip() for name in os.environ[VISIBLE].split(",")]
    by_uuid = tuple(name for name in names if name.startswith("GPU-"))
    return [card for card in cards if card.index in names or (by_uuid and card.uuid.startswith(by_uuid))]


def names_processes(card: Card) -> bool:
    """Whether NVIDIA's tool names one that is here. In a container whose processes have numbers of their own it does
    not: memory of ours would pass for others'."""
    return any(Path(f"/proc/{holder.pid}").exists() for holder in card.holders)


@contextmanager
def naming_holders(*, any_error: bool = False, ask: Callable[[], list[Card]] = cards_of_machine) -> Iterator[None]:
    """Where a card's memory has run out, the error says who else holds it: it is a RunFailed then.

    any_error: a note of any error that can be of memory, as at the start of an engine, whose own process says in its
    log alone what it died of.
    """
    try:
        yield
    except Exception as error:
        of_memory = not isinstance(error, REFUSALS) if any_error else type(error).__name__ in CARD_ERRORS
        lines = describe_held(list(filter(names_processes, visible_cards(ask())))) if of_memory else []
        if not lines:
            raise
        if any_error:
            error.add_note("; ".join(lines))
            raise
        message = str(error).strip().split("\n")[0]
        raise RunFailed(f"{type(error).__name__}: {message}; {'; '.join(lines)}") from error
