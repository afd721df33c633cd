"""`rlsys judge-errors`: a judge against labels of people: confusion table, false-positive and false-negative rate."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs.rewards.asks import RETRY_SEED
from envs.services.judge.config import JudgeConfig
from envs.services.judge.confusion import UNPARSABLE, lines, report
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import Asks, JudgeRequest, ask_each
from envs.services.judge.templates import BadRequest, check, check_kind
from envs.tasks.files import read_jsonl
from launch.commands.services import add_judge_options, start_judge
from launch.commands.shared import chosen
from launch.config.compose import compose
from launch.observe.progress import Bar
from rlsys.errors import BadInput, require

HELP = "measure a judge's errors on labelled answers; the same command continues where it was stopped"
EXAMPLES = """examples:
  rlsys judge-errors --input labelled.jsonl --kind process --endpoint https://host/v1 --model NAME --key-env JUDGE_KEY
  rlsys judge-errors --input labelled.jsonl --kind outcome_math --model Qwen/Qwen2.5-7B-Instruct --output errors.json
  rlsys judge-errors swirl --input labelled.jsonl --kind process            the judge of a recipe (reward.judge)

one line of the input:
  {"fields": {"question": "2 + 3?", "answers": "5", "answer": "five"}, "label": "YES"}
"""


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
    counts, refused = asyncio.run(_count(options, config, records))
    rule = config.unparsable or kind.unparsable
    shown = report(counts, kind.values, reject_unparsable=rule == "wrong")
    shown = {"kind": options.kind, "judge": config.model or config.service, "unparsable_rule": rule} | shown
    shown["refused_lines"] = refused
    for line in lines(shown):
        print(line)
    if refused:
        print(f"{len(refused)} left out: the judge refused the prompt of line {refused[0]} (too long?)")
    if options.output is not None:
        Path(options.output).write_text(json.dumps(shown, indent=2) + "\n", encoding="utf-8")
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
            check(JudgeRequest(kind=kind, fields=fields))
        except BadRequest as error:
            raise BadInput(error, where=where) from error
        records.append(Labelled(line=number, fields=fields, label=str(label)))
    return records


def _judge(options: argparse.Namespace) -> Any:
    """The JudgeConfig of the flags, or of the recipe; answers go to a file beside the input unless one is named."""
    beside = f"{options.input}.judge-cache.sqlite"
    if options.config is None:
        config = chosen(JudgeConfig, options, cache_file=options.cache_file or beside)
        if not config.given:
            raise BadInput(expected="a CONFIG, or --endpoint and --model, or --model, or --service")
        return config

    named = getattr(compose(options.config, options.overrides).recipe.reward, "judge", None)
    if named is None or not named.given:
        raise BadInput(
            "its reward has no judge: give reward.judge.endpoint and reward.judge.model", where=options.config
        )
    file = options.cache_file or named.cache_file or beside
    return replace(named, cache_file=file, unparsable=options.unparsable or named.unparsable)


async def _count(
    options: argparse.Namespace, config: Any, records: Sequence[Labelled]
) -> tuple[Counter[tuple[str, str]], list[int]]:
    """How often each label got each verdict, and the lines that the judge refused."""

    judge: Asks = await start_judge(options, config)
    counts: Counter[tuple[str, str]] = Counter()

    async def ask(record: Labelled) -> None:
        request = JudgeRequest(kind=options.kind, fields=record.fields)
        answer = await judge.ask(request)
        if answer.verdict is None and config.unparsable == "retry":
            answer = await judge.ask(request, seed=RETRY_SEED)
        counts[record.label, answer.verdict.value if answer.verdict is not None else UNPARSABLE] += 1

    with Bar() as show:
        refused = await ask_each(judge, records, ask, config.max_concurrent, show, "judged")
    return counts, sorted(each.line for each in refused)
