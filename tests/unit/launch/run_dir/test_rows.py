"""Lines of a run as records: what is absent, or of another type than a run writes, has its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.run_dir.lenient import decode_lenient
from launch.run_dir.rows import Event, read_last_step, read_steps
from tests.makers.run_directory import run_directory


@dataclass(frozen=True)
class Inner:
    name: str = ""


@dataclass(frozen=True)
class Outer:
    count: int = 0
    share: float | None = None
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    anything: Any = None


def test_what_fits_is_taken_and_the_rest_has_its_default() -> None:
    value = {"count": 3, "share": 2, "inner": {"name": "a", "more": 1}, "inners": [{}, "b", {"name": "c"}, {"name": 4}]}
    outer = decode_lenient(Outer, {**value, "by_name": {"x": {"name": "d"}, "y": []}, "anything": [1], "absent": 0})
    assert outer.inners == (Inner(), Inner("c"), Inner()) and outer.inner == Inner("a")
    assert (outer.count, outer.share, outer.by_name, outer.anything) == (3, 2, {"x": Inner("d")}, [1])
    odd = {"count": True, "share": "1", "inner": [], "inners": {"name": "a"}, "by_name": []}
    assert decode_lenient(Outer, odd) == decode_lenient(Outer, [1]) == Outer()
    assert decode_lenient(Outer, {"share": None, "inner": None, "inners": None}) == Outer()


def test_an_event_of_another_shape_is_one_without_what_does_not_fit() -> None:
    assert decode_lenient(Event, {"kind": "lost", "time": "soon", "step": 1.5, "groups": 2}) == Event(
        kind="lost", groups=2
    )


def test_the_newest_step_is_the_last_whole_row(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "a", [{"step": 1, "time": 5.0}, {"step": 2, "time": 7}])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('nothing\n{"stage": "rl"}\n{"step": 3, "sta')
    last = read_last_step(run)
    assert last is not None and (last.step, last.stage, last.time, last.number("absent")) == (2, "rl", 7.0, 0.0)
    (run / "metrics.jsonl").unlink()
    assert read_last_step(run) is None and not list(read_steps(run))
