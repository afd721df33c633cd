"""What episodes show, as means of a file: reflection keywords, branching, code, process labels, when they answered.

One line is held at a time. An episode that failed is in no mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.text.words import step_verdict
from launch.run_dir.lines import read_lines
from launch.run_dir.names import episodes_name
from launch.run_dir.runs import Measurement, Run
from rlsys.metrics import Mean, Metric, Metrics, merge, values
from rlsys.records import TrajectoryRecord, read_trajectory
from rlsys.summaries import MOST_TURNS
from rlsys.types import EpisodeEnd

KEYWORDS = ("wait", "recheck", "alternatively", "retry", "however")  # Long CoT (arXiv 2502.03373), section 5.1
_WORDS = {word: re.compile(rf"\b{word}\b", re.IGNORECASE) for word in KEYWORDS}
_PIVOT = re.compile(r"\balternatively,", re.IGNORECASE)  # figures 11 and 12: its count estimates branching
CODE = "```python"  # section 5.2: what makes a response "coding"
STEP_FILE = re.compile(r"step-(\d+)\.jsonl(?:\.gz)?")
TRAINING = "training"
ANSWERED = "episode/answered_by_"  # and the number of a message, as in metrics.jsonl


def measure_episode(record: TrajectoryRecord) -> Metrics:
    """Nothing of an episode that was not graded."""
    if record.reward is None:
        return {}
    replies = [message.content for message in record.messages if message.role == "assistant"]
    text = "\n".join(replies)
    metrics: dict[str, Metric] = {f"word/{word}": Mean(float(bool(p.search(text)))) for word, p in _WORDS.items()}
    coding = CODE in text
    metrics["branching"] = Mean(float(len(_PIVOT.findall(text))))
    metrics["coding/rate"] = Mean(float(coding))
    answered = len(replies) if record.end is EpisodeEnd.ANSWERED else MOST_TURNS + 1
    metrics |= {f"{ANSWERED}{turn}": Mean(float(answered <= turn)) for turn in range(1, MOST_TURNS + 1)}
    if record.num_tokens is not None:
        metrics["coding/tokens_code" if coding else "coding/tokens_text"] = Mean(float(record.num_tokens))
    return metrics | _label_metrics(record.judgements)


def _label_metrics(judgements: Sequence[str]) -> dict[str, Metric]:
    """Process labels: the macro accuracy is the mean over episodes of their mean (arXiv 2504.04736, table 3)."""
    if not judgements:
        return {}
    verdicts = list(map(step_verdict, judgements))
    good, count = float(verdicts.count("GOOD")), len(verdicts)
    return {
        "verdict/macro": Mean(good / count),
        "verdict/all_good": Mean(float(good == count)),
        "verdict/unparsable": Mean(float(verdicts.count(None)), count),
    }


def find_files(run: Run, episodes: str) -> list[tuple[Measurement, Path]]:
    """The files to read, with the row of the step that each is of: of training, or of one play of the evaluations."""
    folder = run.path / "trajectories"
    files = _training_files(run, folder) if episodes == TRAINING else _evaluation_files(run, folder, episodes)
    return sorted(files, key=lambda pair: pair[0].step)


def _training_files(run: Run, folder: Path) -> Iterator[tuple[Measurement, Path]]:
    steps = {row.step: row for row in run.rows}
    for path in folder.glob("step-*"):
        match = STEP_FILE.fullmatch(path.name)
        if match and int(match[1]) in steps:  # a step that was taken back has no row
            yield steps[int(match[1])], path


def _evaluation_files(run: Run, folder: Path, play: str) -> Iterator[tuple[Measurement, Path]]:
    for row in run.evaluations:
        plain = folder / f"{episodes_name(row.stage, row.when, row.step, play)}.jsonl"
        yield from ((row, path) for path in (plain, Path(f"{plain}.gz")) if path.is_file())


def average_episodes(row: Measurement, path: Path) -> Measurement:
    """The means of a file's episodes, at the step of `row`; without verdicts where none can be read. Raises BadInput
    for a damaged line."""
    lines = enumerate(read_lines(path), start=1)
    means = values(merge(measure_episode(read_trajectory(line, f"{path} line {number}")) for number, line in lines))
    if means.get("verdict/unparsable") == 1:  # judgements of another kind, such as summaries of answers
        means = {key: mean for key, mean in means.items() if not key.startswith("verdict/")}
    return Measurement(stage=row.stage, step=row.step, stage_step=row.stage_step, values=means)
