"""`rlsys judge-errors` with a scripted judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.cli import run
from tests.fakes.judge_endpoint import five_is_right, scripted
from tests.makers.made import jsonl

FIELDS = {"question": "2 + 3?", "answers": "5", "answer": "5.0"}


def test_labels_against_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled = tmp_path / "labelled.jsonl"
    answers = [("5", "YES"), ("five", "YES"), ("15", "NO"), ("7", "NO"), ("unsure", "NO"), ("too long", "NO")]
    rows = [{"fields": FIELDS | {"answer": answer}, "label": label} for answer, label in answers]
    jsonl(labelled, rows)
    with scripted(five_is_right) as endpoint:
        flags = ["--input", str(labelled), "--kind", "outcome_math", "--endpoint", endpoint.url, "--model", "scripted"]
        assert run(["judge-errors", *flags, "--output", str(tmp_path / "errors.json")]) == 0
        report = json.loads((tmp_path / "errors.json").read_text())
        assert report["table"]["YES"] == {"YES": 1, "NO": 1, "unparsable": 0}
        assert report["table"]["NO"] == {"YES": 1, "NO": 1, "unparsable": 1}
        assert (report["false_positive"]["count"], report["false_positive"]["of"]) == (1, 3)
        assert report["false_negative"]["rate"] == 0.5
        assert report["refused_lines"] == [6] and "false positive" in capsys.readouterr().out
        count = len(endpoint.asked)
        assert run(["judge-errors", *flags]) == 0
        assert len(endpoint.asked) == count + 1  # the rest is in the cache; what was refused is asked again
        labelled.write_text(json.dumps(rows[0] | {"label": "MAYBE"}))
        assert run(["judge-errors", *flags]) == 2
        assert "line 1: label='MAYBE': expected one of YES, NO" in capsys.readouterr().err
