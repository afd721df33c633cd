"""`rlsys judge-errors`: a judge against labels of people: confusion table, false-positive and false-negative rate."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs.rewards.asks import RETRY_SEED
from envs.services.first_question import check_addresses, judge_address
from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import AskableJudge, JudgeRequest, ask_each
from envs.services.judge.templates import BadRequest, check_kind, check_request
from envs.tasks.files import read_jsonl
from launch.commands.services import add_judge_options, start_judge
from launch.commands.shared import config_from_options
from launch.config.compose import compose
from launch.config.mixture import require_one
from launch.driver.observe.progress import Bar
from launch.run_dir.significance import wilson_interval
from rlsys.errors import BadInput, require

HELP = "measure a judge's errors on labelled answers; the same command continues where it was stopped"
EXAMPLES = """examples:
  rlsys judge-errors --input labelled.jsonl --kind process --endpoint https://host/v1 --model NAME --key-env JUDGE_KEY
  rlsys judge-errors --input labelled.jsonl --kind outcome_math --model Qwen/Qwen2.5-7B-Instruct --output errors.json
  rlsys judge-errors swirl --input labelled.jsonl --kind process            the judge of a recipe (reward.judge)

one line of the input:
  {"fields": {"question": "2 + 3?", "answers": "5", "answer": "five"}, "label": "YES"}
"""
ACCEPTING = ("GOOD", "YES", "correct")  # the verdicts that speak for what was judged
UNPARSABLE = "unparsable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    line: int
    fields: dict[str, str]
    label: str


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", nargs="?", help="recipe whose reward.judge is measured")
    command.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="override a key of the config")
    command.add_argument(
        "--input", metavar="F.jsonl", required=True, help='JSON lines of {"fields": {..}, "label": ".."}'
    )
    command.add_argument("--kind", required=True, help="kind of prompt, such as process, outcome_search, outcome_math")
    command.add_argument("--output", metavar="F", help="JSON file for the table and the rates")
    command.add_argument("--service", metavar="URL", help="address of a running `rlsys serve judge`")
    command.add_argument(
        "--unparsable", choices=("wrong", "fail", "retry"), help="answers without a verdict (default: the kind's)"
    )
    add_judge_options(command)


def run(options: argparse.Namespace) -> int:
    try:
        check_kind(options.kind)
    except BadRequest as error:
        raise BadInput(error.message, key="--kind") from error
    kind = KINDS[options.kind]
    if not kind.values:
        raise BadInput(
            "its answers are free text", key="--kind", found=options.kind, expected="a kind with verdicts to count"
        )
    records = read_labelled(options.input, options.kind)
    config = _judge(options)
    address = judge_address("judge", config)
    check_addresses([address] if address is not None else [], print)
    counts, refused = asyncio.run(_count(options, config, records))
    rule = config.unparsable or kind.unparsable
    summary = report(counts, kind.values, reject_unparsable=rule == "wrong")
    summary = {"kind": options.kind, "judge": config.model or config.service, "unparsable_rule": rule} | summary
    summary["refused_lines"] = refused
    for line in lines(summary):
        print(line)
    if refused:
        print(f"{len(refused)} left out: the judge refused the prompt of line {refused[0]} (too long?)")
    if options.output is not None:
        Path(options.output).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return 0


def read_labelled(path: str, kind: str) -> list[Labelled]:
    """Raises BadInput naming the line."""
    values = KINDS[kind].values
    records: list[Labelled] = []
    for number, record in read_jsonl(path):
        where = f"{path} line {number}"
        fields, label = record.get("fields"), record.get("label")
        if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
            raise BadInput(where=where, expected='"fields" with texts, such as {"question": ".."}')
        require(label in values, f"{where}: label", label, f"one of {', '.join(values)}")
        try:
            check_request(JudgeRequest(kind=kind, fields=fields))
        except BadRequest as error:
            raise BadInput(error, where=where) from error
        records.append(Labelled(line=number, fields=fields, label=str(label)))
    return records


def _judge(options: argparse.Namespace) -> Any:
    """The JudgeConfig of the flags, or of the recipe; answers go to a file next to the input unless one is named."""
    default = f"{options.input}.judge-cache.sqlite"
    if options.config is None:
        config = config_from_options(JudgeConfig, options, cache_file=options.cache_file or default)
        if not config.given:
            raise BadInput(expected="a CONFIG, or --endpoint and --model, or --model, or --service")
        return config

    recipe = compose(options.config, options.overrides).recipe
    require_one(recipe, "rlsys judge-errors knows")
    judge = getattr(recipe.reward, "judge", None)
    if judge is None or not judge.given:
        raise BadInput(
            "its reward has no judge: give reward.judge.endpoint and reward.judge.model", where=options.config
        )
    file = options.cache_file or judge.cache_file or default
    return replace(judge, cache_file=file, unparsable=options.unparsable or judge.unparsable)


async def _count(
    options: argparse.Namespace, config: Any, records: Sequence[Labelled]
) -> tuple[Counter[tuple[str, str]], list[int]]:
    """How often each label got each verdict, and the lines that the judge refused."""

    judge: AskableJudge = await start_judge(options, config)
    counts: Counter[tuple[str, str]] = Counter()

    async def ask(record: Labelled) -> None:
        request = JudgeRequest(kind=options.kind, fields=record.fields)
        answer = await judge.ask(request)
        if answer.verdict is None and config.unparsable == "retry":
            answer = await judge.ask(request, seed=RETRY_SEED)
        counts[record.label, answer.verdict.value if answer.verdict is not None else UNPARSABLE] += 1

    with Bar() as show:
        refused = await ask_each(judge, records, ask, config.max_concurrent, show, "judged")
    return counts, sorted(record.line for record in refused)


def report(
    counts: Mapping[tuple[str, str], int], values: tuple[str, ...], *, reject_unparsable: bool
) -> dict[str, Any]:
    """`counts` by (label, verdict), a verdict being one of `values` or `unparsable`.

    Where the verdicts accept and reject, a false positive is an accepted answer with a rejecting label. `rate` is its
    share of all rejecting labels, `share_of_all` of all answers: the paper's "4 %" of 100 answers may be either. With
    `reject_unparsable` an answer without a verdict rejects; otherwise it is in no rate.
    """
    table = {label: {value: counts.get((label, value), 0) for value in (*values, UNPARSABLE)} for label in values}
    total = sum(counts.values())
    agreed = sum(count for (label, verdict), count in counts.items() if label == verdict)
    lost = sum(count for (_, verdict), count in counts.items() if verdict == UNPARSABLE)
    summary: dict[str, Any] = {
        "count": total,
        "table": table,
        "agreement": _rate(agreed, total),
        UNPARSABLE: _rate(lost, total),
    }
    if not set(values) & set(ACCEPTING):
        return summary
    decided: Counter[tuple[bool, bool]] = Counter()  # (label accepts, verdict accepts)
    for (label, verdict), count in counts.items():
        if verdict != UNPARSABLE or reject_unparsable:
            decided[label in ACCEPTING, verdict in ACCEPTING] += count
    for name, accepts in (("false_positive", True), ("false_negative", False)):
        wrong = decided[not accepts, accepts]
        summary[name] = _rate(wrong, wrong + decided[not accepts, not accepts])
        summary[name]["share_of_all"] = wrong / total if total else None
    return summary


def _rate(k: int, n: int) -> dict[str, Any]:
    low, high = wilson_interval(k, n)
    return {"count": k, "of": n, "rate": k / n if n else None, "interval_95": [low, high]}


def lines(summary: Mapping[str, Any]) -> list[str]:
    """The report as text: the table, labels down and verdicts across, then the rates."""
    table: Mapping[str, Mapping[str, int]] = summary["table"]
    columns = list(next(iter(table.values())))
    width = max(len(name) for name in (*table, *columns, "label")) + 2
    text = ["".join(f"{name:>{width}}" for name in ("label", *columns))]
    text += ["".join(f"{cell:>{width}}" for cell in (label, *row.values())) for label, row in table.items()]
    for name in ("agreement", "false_positive", "false_negative", UNPARSABLE):
        if name in summary:
            rate, (low, high) = summary[name], summary[name]["interval_95"]
            share = "-" if rate["rate"] is None else f"{rate['rate']:.1%}"
            between = f"95 %: {low:.1%} to {high:.1%}"
            text.append(f"{name.replace('_', ' '):<15} {share:>6}  {rate['count']} of {rate['of']}, {between}")
    return text
