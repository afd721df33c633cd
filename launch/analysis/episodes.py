"""What episodes show, as means of a file: reflection keywords, branching, code, process labels, when they answered.

One line is held at a time. An episode that failed is in no mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.text.words import step_verdict
from launch.analysis.runs import Measurement, Run, objects
from rlsys.metrics import Mean, Metric, Metrics, merge, values
from rlsys.summaries import MOST_TURNS
from rlsys.types import EpisodeEnd

KEYWORDS = ("wait", "recheck", "alternatively", "retry", "however")  # Long CoT (arXiv 2502.03373), section 5.1
_WORDS = {word: re.compile(rf"\b{word}\b", re.IGNORECASE) for word in KEYWORDS}
_PIVOT = re.compile(r"\balternatively,", re.IGNORECASE)  # figures 11 and 12: its count estimates branching
CODE = "```python"  # section 5.2: what makes a response "coding"
STEP_FILE = re.compile(r"step-(\d+)\.jsonl(?:\.gz)?")
TRAINING = "training"
ANSWERED = "episode/answered_by_"  # and the number of a message, as in metrics.jsonl


def episode_metrics(record: Mapping[str, Any]) -> Metrics:
    """Of one line of a trajectory file; nothing where it was not graded."""
    said = _said(record)
    if said is None or record.get("reward") is None:
        return {}
    text = "\n".join(said)
    found: dict[str, Metric] = {f"word/{word}": Mean(float(bool(p.search(text)))) for word, p in _WORDS.items()}
    coding = CODE in text
    found["branching"] = Mean(float(len(_PIVOT.findall(text))))
    found["coding/rate"] = Mean(float(coding))
    answered = len(said) if record.get("end") == EpisodeEnd.ANSWERED else MOST_TURNS + 1
    found |= {f"{ANSWERED}{turn}": Mean(float(answered <= turn)) for turn in range(1, MOST_TURNS + 1)}
    tokens = record.get("num_tokens")
    if type(tokens) is int:
        found["coding/tokens_code" if coding else "coding/tokens_text"] = Mean(float(tokens))
    return {**found, **_labels(record.get("judgements"))}


def _said(record: Mapping[str, Any]) -> list[str] | None:
    """The messages of the model."""
    messages = record.get("messages")
    if not isinstance(messages, list):
        return None
    given = [each for each in messages if isinstance(each, dict) and each.get("role") == "assistant"]
    return [each["content"] for each in given if isinstance(each.get("content"), str)]


def _labels(judgements: Any) -> Metrics:
    """Process labels: the macro accuracy is the mean over episodes of their mean (arXiv 2504.04736, table 3)."""
    if not isinstance(judgements, list) or not judgements:
        return {}
    verdicts = [step_verdict(each) if isinstance(each, str) else None for each in judgements]
    good, count = float(verdicts.count("GOOD")), len(verdicts)
    return {
        "verdict/macro": Mean(good / count),
        "verdict/all_good": Mean(float(good == count)),
        "verdict/unparsable": Mean(float(verdicts.count(None)), count),
    }


def files_of(run: Run, episodes: str) -> list[tuple[Measurement, Path]]:
    """The files to read, with the row of the step that each is of: of training, or of one play of the evaluations."""
    folder = run.path / "trajectories"
    found = _training(run, folder) if episodes == TRAINING else _evaluated(run, folder, episodes)
    return sorted(found, key=lambda each: each[0].step)


def _training(run: Run, folder: Path) -> Iterator[tuple[Measurement, Path]]:
    steps = {row.step: row for row in run.rows}
    for path in folder.glob("step-*"):
        match = STEP_FILE.fullmatch(path.name)
        if match and int(match[1]) in steps:  # a step that was taken back has no row
            yield steps[int(match[1])], path


def _evaluated(run: Run, folder: Path, play: str) -> Iterator[tuple[Measurement, Path]]:
    for each in run.evaluations:
        label = f"step-{each.step:06d}" if each.when == "during" else each.when
        name = f"eval-{each.stage}-{label}-{play.replace('/', '-')}.jsonl"
        yield from ((each, path) for path in (folder / name, folder / f"{name}.gz") if path.is_file())


def plays_of(evaluations: Sequence[Measurement]) -> list[str]:
    """`greedy` and `sampled`, or `musique/greedy` ..."""
    keys = (key for each in evaluations for key in each.values if key.endswith("/episodes"))
    return list(dict.fromkeys(key.removesuffix("/episodes") for key in keys))


def read_episodes(run: Run, episodes: str, told: Callable[[], None]) -> Iterator[Measurement]:
    """One row for each file. told: called after each. Raises BadInput for a damaged line."""
    for row, path in files_of(run, episodes):
        totals: dict[str, Metric] = {}
        for record in objects(path):
            totals = merge((totals, episode_metrics(record)))
        told()
        if totals:
            means = values(totals)
            if means.get("verdict/unparsable") == 1:  # judgements of another kind, such as summaries of answers
                means = {key: mean for key, mean in means.items() if not key.startswith("verdict/")}
            yield Measurement(stage=row.stage, step=row.step, stage_step=row.stage_step, values=means)
