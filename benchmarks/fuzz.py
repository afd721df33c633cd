"""Everything that reads what a model wrote, fed with junk: `python benchmarks/fuzz.py [--seconds 60] [--seed 0]`.

Texts are made of the tags, words and signs that the parsers look for. Exit code 1, and the text, where one of them
raises what it should not, or loses text; tells the slowest call of each.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from report import Report, parser

from envs.papers.graph_rl.blocks.words import read_action, read_plan, read_verdict
from envs.papers.graph_rl.graphs import parse as graphs
from envs.papers.graph_rl.graphs.encodings import ENCODINGS
from envs.papers.icrl.protocol import INFORMATION
from envs.papers.research.protocol import RESULT
from envs.protocols import PROTOCOLS, Inline
from envs.protocols.retool import INTERPRETER
from envs.rewards.maths import dates, structure, units, words
from envs.rewards.maths import text as maths_text
from envs.rewards.maths.quantity import parse_quantity
from envs.rewards.transcript import split_inline
from envs.services.judge.kinds import KINDS
from envs.text.words import last_boxed
from envs.tools.calculator import calculate

WORDS = r"""
<search> </search> <result> </result> <answer> </answer> <think> </think> <information> </information> <code> </code>
```python ``` <interpreter> </interpreter> <math_exp> </math_exp> <search_query> </search_query> <response> </response>
\boxed{ } { \frac \text{ \[ \] $ $$ \sqrt{ ^ _ \pi \cdot \% [PLAN] [PLAN END] unstack the red block from on top of stack
pick up put down blue Node 0 node 1 -> with weight 2 total weight of = 3. shortest path length yes no Yes. not connected
1.5 -3 1e9 ** ( ) + * / % sqrt factorial to , ; : pi score [[5]] **A** (B) <|im_end|> x=3 50% true Decision: GOOD BAD
"""
FRAGMENTS = [*WORDS.split(), "\n", "\t", "\0", "\u202e", "é", "中", "9" * 50, "(" * 50, "<" * 20, "'", '{"score":']


def rejoined(text: str, inline: Inline) -> None:
    joined = "".join(message.content for message in split_inline(text, inline))
    if joined != text:
        raise AssertionError("text was lost")


def readers() -> dict[str, Callable[[str], Any]]:
    table: dict[str, Callable[[str], Any]] = {f"protocol {key}": protocol.parse for key, protocol in PROTOCOLS.items()}
    table |= {f"judge {name}": kind.parse for name, kind in KINDS.items()}
    for encoding in ENCODINGS:
        names = graphs.labels(8, encoding)
        table[f"graph step, {encoding}"] = partial(graphs.read_step, names=names)
        table[f"graph path, {encoding}"] = partial(graphs.read_path_answer, names=names)
    for inline in (INFORMATION, INTERPRETER, RESULT):
        table[f"inline {inline.opening.strip()}"] = partial(rejoined, inline=inline)
    plain: list[Any] = [graphs.split_parts, graphs.read_yes_no, read_action, read_plan, read_verdict, last_boxed]
    plain += [
        maths_text.clean,
        maths_text.flatten,
        parse_quantity,
        units.split_unit,
        words.parse_choice,
        dates.parse_date,
        calculate,
    ]
    plain += [structure.parse_collection, structure.parse_relation, structure.parse_spans]
    return table | {reader.__name__: reader for reader in plain}


def text_of(rng: random.Random) -> str:
    count = rng.choice((1, 3, 10, 40, 200))
    text = "".join(rng.choice(FRAGMENTS) + rng.choice(("", " ", "\n")) for _ in range(count))
    text *= rng.choice((1,) * 18 + (2, 50))
    place = rng.randrange(len(text) + 1)
    return text[:place] + chr(rng.choice((*range(0xD800), *range(0xE000, 0x110000, 97)))) + text[place:]


def main() -> int:
    cli = parser(__doc__)
    cli.add_argument("--seconds", type=float, default=60.0)
    cli.add_argument("--seed", type=int, default=0)
    options = cli.parse_args()
    rng, all_readers = random.Random(options.seed), readers()
    slowest: dict[str, tuple[float, int]] = dict.fromkeys(all_readers, (0.0, 0))
    calls, end = 0, time.monotonic() + options.seconds
    while time.monotonic() < end:
        text = text_of(rng)
        for name, read in all_readers.items():
            started = time.perf_counter()
            try:
                read(text)
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}\n{text!r}", file=sys.stderr)
                return 1
            slowest[name] = max(slowest[name], (time.perf_counter() - started, len(text)))
            calls += 1
    with Report(options) as report:
        report.head("the slowest readers", "ms", "characters")
        for name, (seconds, length) in sorted(slowest.items(), key=lambda entry: -entry[1][0])[:5]:
            report.row(name, seconds * 1e3, length)
        report.note(f"{calls:,} calls of {len(all_readers)} readers, no exception")
    return 0


if __name__ == "__main__":
    sys.exit(main())
