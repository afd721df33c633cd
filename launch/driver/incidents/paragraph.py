"""`incident.md`: who waits for whom, since when, and what to try. Pure: facts in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launch.driver.incidents.facts import Facts, PartFacts, utc

# Of a phase: for what the driver waits, and the roles that may keep it waiting.
WAITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "wait_rollout": ("for groups of episodes from the rollout workers", ("rollout",)),
    "build": ("for the learner ranks to fetch and pack the rows of a batch", ("learner",)),
    "publish_previous": ("for the engines to load the last weights and for the last row", ("rollout", "weights")),
    "update": ("for the learner ranks to update", ("learner",)),
    "export": ("for the learner ranks to write new weights into shared memory", ("learner", "weights")),
    "checkpoint": ("for a checkpoint to be copied", ("learner",)),
    "held_out": ("for the loss of held-out examples", ("learner",)),
    "wait_data": ("for the next batch to be planned, in the driver itself", ("driver",)),
}
HEADS = {
    "lost": "{who} was lost",
    "stall": "{who} stalled",
    "refused": "{who} computes something else than the learner",
    "delivery_late": "{who} is late with new weights",
    "failed": "the run failed",
    "asked": "a look at the run",
}
STOPPED, GONE, DISK = "stopped", "gone", "waiting for a disk"
SHOWN = 8  # parts of which the place is named


@dataclass(frozen=True, slots=True)
class Remedy:
    cause: str
    holds: Callable[[Facts], bool]
    text: str


def _says(*words: str) -> Callable[[Facts], bool]:
    return lambda facts: any(word in f"{facts.text} {' '.join(facts.also)}".lower() for word in words)


def _in_phase(*names: str) -> Callable[[Facts], bool]:
    return lambda facts: facts.kind in ("stall", "asked") and facts.phase.get("name") in names


def _has(state: str) -> Callable[[Facts], bool]:
    return lambda facts: any(part.state == state for part in facts.parts)


_full_node = _says("running low on memory", "address the out of memory issue")  # Ray's words: of an error, of an actor
_full_gpu = _says("cuda out of memory")
_killed = _says("sigkill", "out of memory", "oom")

# The first that holds stand first; at most three are shown.
ADVICE: tuple[Remedy, ...] = (
    Remedy(
        "stopped",
        _has(STOPPED),
        "A process is stopped (SIGSTOP: a debugger, job control, a batch system that suspends). `kill -CONT PID` lets "
        "it continue; the run restarts it by itself once its ping is late.",
    ),
    Remedy(
        "disk full",
        _says("no space left", "disk quota"),
        "Make room on the disk of the run directory (`df`), then give the same command: it continues the run.",
    ),
    Remedy(
        "node memory",
        _full_node,
        "Ray ended it since the memory of its node was full: `Top 10 memory users` in logs/ray-raylet.out says whose "
        "it was. Fewer rollout.workers, a smaller engine.kv_cache_mb or learner.tokens_per_row take less.",
    ),
    Remedy(
        "GPU memory",
        _full_gpu,
        "A GPU has too little memory: `rlsys plan CONFIG` shows the sum; lower engine.gpu_memory_utilization or "
        "learner.tokens_per_row.",
    ),
    Remedy(
        "memory",
        lambda facts: _killed(facts) and not (_full_node(facts) or _full_gpu(facts)),
        "The kernel may have killed it for memory: `dmesg -T | grep -i oom`; machine.txt has what was free. Fewer "
        "rollout.workers or a shorter engine.max_model_len take less.",
    ),
    Remedy(
        "disk",
        _has(DISK),
        "A process waits in the kernel for a disk or a network file system: see `dmesg`, and whether `ls` of the run "
        "directory answers.",
    ),
    Remedy(
        "tool",
        lambda facts: facts.kind == "stall" and not facts.phase.get("overdue") and "does not answer" in facts.text,
        "A tool is away, and what needs it waits: its own log and its address say more; the run continues when it "
        "answers.",
    ),
    Remedy(
        "weights",
        lambda facts: facts.kind == "refused",
        "Engine and learner compute different log-probabilities: mismatch/* of metrics.jsonl, engine.dtype and "
        "loop.mismatch_limit; one engine alone points to its GPU.",
    ),
    Remedy(
        "late weights",
        lambda facts: facts.kind == "delivery_late",
        "Engines load weights too slowly: weights/* of metrics.jsonl, loop.publish_deadline_s, cluster.weights_dir on "
        "a faster disk; `rlsys doctor` measures the links between nodes.",
    ),
    Remedy(
        "episodes",
        _in_phase("wait_rollout"),
        "Workers that are at work (tokens/generated_per_s, tool/*) play long episodes: rollout.episode_timeout_s and "
        "rollout.max_response_tokens bound them. Workers that are all idle point to a tool: see the stacks.",
    ),
    Remedy(
        "ranks",
        _in_phase("update", "build", "export", "held_out"),
        "Compare the stacks of the ranks: one that stands elsewhere than the others keeps them in a collective. "
        "learner.update_timeout_s ends the wait; cluster.env NCCL_DEBUG=INFO says more on GPUs.",
    ),
    Remedy(
        "checkpoint",
        _in_phase("checkpoint"),
        "The disk of the run directory is slow: `rlsys doctor` looks at it; checkpoint.every writes fewer.",
    ),
    Remedy(
        "publish",
        _in_phase("publish_previous"),
        "An engine does not load new weights: its stack and its log say where it stands; loop.publish_deadline_s ends "
        "the wait.",
    ),
    Remedy(
        "restart",
        lambda facts: facts.kind == "lost",
        "The run restarts it and plays its groups again: nothing is to be done unless it happens again and again. The "
        "part's log, in logs/, ends with what it said last.",
    ),
    Remedy(
        "failed",
        lambda facts: facts.kind == "failed",
        "The same command continues the run from its newest checkpoint, if there is one, once the cause is removed; "
        "else it begins again.",
    ),
)
MOST_ADVICE = 3  # more is not read


def describe(facts: Facts) -> str:
    """The whole file."""
    at = f"step {facts.step + 1}" + (f" of stage {facts.stage}" if facts.stage else "")
    head = HEADS.get(facts.kind, "{who}").format(who=facts.who or "the run")
    lines = [f"# {head}, in {at}", "", f"{utc(facts.time)}. {facts.text.strip()}", ""]
    lines += [" ".join(sentences(facts)), "", "## What to try", ""]
    lines += [f"* {line}" for line in advice(facts)]
    if facts.also:
        lines += ["", "## Also", "", *(f"* {line}" for line in facts.also)]
    lines += ["", "## The parts", ""]
    lines += ["| part | process | pid | state | where it stands |", "|---|---|---|---|---|"]
    for part in facts.parts:
        cells = (part.part, part.title, str(part.pid), part.state, part.at or part.problem)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    lines += [f"| {name} | | | gone | |" for name in facts.gone]
    if facts.nodes > 1:
        lines += ["", f"The run has parts on {facts.nodes} nodes: those of other nodes are not in the table."]
    if facts.missing:
        lines += ["", "## What is missing here", "", *(f"* {line}" for line in facts.missing)]
    return "\n".join(lines) + "\n"


def sentences(facts: Facts) -> Iterator[str]:
    """Who waits for whom, since when."""
    phase, roles = facts.phase, tuple[str, ...]()
    if phase:
        wait_text, roles = WAITS.get(phase["name"], (f"in {phase['name']}", ()))
        usual = f", usually {phase['usual_s']:.2g} s" if phase.get("usual_s") is not None else ""
        yield f"The driver waits {wait_text} ({phase['name']}), for {phase['since_s']:.0f} s so far{usual}."
    elif facts.kind != "failed":  # which has left the phase that failed
        yield "The driver is between two phases of a step, or before the first one."
    lines = list(suspects(facts, roles))
    yield from lines
    if not lines and facts.kind in ("stall", "asked"):
        yield "No process is stopped, stuck in the kernel or gone; where each part stands is below."


def suspects(facts: Facts, roles: tuple[str, ...] = ()) -> Iterator[str]:
    """Parts that keep others waiting, the surest first."""
    blamed = set()
    for part in facts.parts:
        if part.state in (STOPPED, DISK) and part.part not in blamed:
            blamed.add(part.part)
            how = "is stopped (SIGSTOP)" if part.state == STOPPED else "waits in the kernel for a disk"
            yield f"{part.part} (pid {part.pid}) {how}: what needs it waits for it."
    for name in facts.gone:
        if name not in blamed:
            yield f"{name} has no process any more."
    if facts.kind == "lost" and facts.who not in blamed and facts.who not in facts.gone:
        yield f"{facts.who} was found dead; by now another process may stand in its place."
    awaited = [part for part in facts.parts if _role(part) in roles and part.part not in blamed and part.at]
    if awaited and facts.kind in ("stall", "asked"):
        yield "Of those it waits for, " + "; ".join(f"{part.part} is in {part.at}" for part in awaited[:SHOWN]) + "."


def advice(facts: Facts) -> list[str]:
    texts = [entry.text for entry in ADVICE if entry.holds(facts)][:MOST_ADVICE]
    return texts or ["Look where the parts stand (stacks/), and at the last lines of their logs (logs/)."]


def culprit(facts: Facts) -> str:
    """For a list: "rollout:0 stopped"."""
    suspect = next((part for part in facts.parts if part.state in (STOPPED, DISK)), None)
    if suspect is not None:
        return f"{suspect.part} {suspect.state}"
    return f"{facts.gone[0]} gone" if facts.gone else ""


def _role(part: PartFacts) -> str:
    return part.part.split(":")[0].split("-")[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
