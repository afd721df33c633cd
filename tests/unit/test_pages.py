"""What a page names exists: commands with the overrides that its recipe takes, files, tests, keys, links, laws.

Data and models that the machine of the tests lacks are no fault of a page.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from launch.cli import COMMANDS, parse
from launch.config.compose import TABLES, compose, last_recipe
from launch.config.keys import known_names
from launch.config.layers import find_config
from launch.config.synonyms import load_synonyms
from launch.tools.analysis.figures import FIGURES
from rlsys import OURS
from rlsys.errors import BadInput
from tests.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "configs").rglob("*.md")),
         *sorted((ROOT / "deploy").rglob("*.md"))]  # fmt: skip
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
FENCED = re.compile(r"(?ms)^ *```\w*\n(.*?)^ *```")
INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
COMMAND = re.compile(rf"(?:\$ |\w+=\S+ )*rlsys ({'|'.join(COMMANDS)})\b")
WORD = r"""(?:'[^']*'|"[^"]*"|\{(?:[^{}]|\{[^{}]*\})*\}|[^\s'"{])+"""
ONE = re.compile(rf"[a-z_]+(?:\.\w+)+={WORD}")
OVERRIDES = re.compile(rf"{ONE.pattern}( {ONE.pattern})*")
# Of pages under docs/ one of these takes an override; of a paper's page its recipe or the miniature.
WORLDS = ("search", "python", "sums", "graph", "blocksworld", "games", "mixture", "tools")
ANY = ["quickstart", *(f"worlds/{world}" for world in WORLDS),
       "research", "icrl", "swirl", "graph_rl", "long_cot"]  # fmt: skip
# Names that stand for a reader's own, a setting of the system, keys of summary.json, names of other systems.
NO_KEYS = {
    *(name for names in load_synonyms().equivalents.values() for name in names),
    "eval.after", "eval.before", "eval.stages",
    "algorithm.adv_estimator", "algorithm.use_kl_in_reward",  # verl's
    "env.name=MODULE.CLASS", "env.name=my_module.MyWorld", "env.protocol=NAME", "env.width=31",
    "kernel.apparmor_restrict_unprivileged_userns=0", "reward.name=my_package.MyReward",
    "stages.NAME.key=value", "stages.NAME=null", "eval.sets.NAME=null",
}  # fmt: skip
KEYS = {*known_names(TABLES, {})}
PATH = re.compile(
    r"(?<![\w./-])((?:rlsys|envs|actors|learners|launch|tests|benchmarks|configs|docs|unit|e2e|ray)/[\w/.-]*[\w/])"
)
KEY = re.compile(
    rf"(?<![\w./])((?:{'|'.join({key.partition('.')[0] for key in KEYS if '.' in key})})(?:\.[a-z_]+)+)(?![\w(/.=])"
)
BELOW = ("stages.", "envs.", "engine.vllm.", "eval.judge.")  # what stands there is no key of the reference
CITED = re.compile(r"\blaws? ([0-9]+)")
# Files that a page has one write, a recipe that is the reader's choice, and what a command looks like.
A_READERS = (
    "grpo.yaml",
    "gsm8k.yaml",
    "train CONFIG",
    "maze/maze.yaml",
    "brief/brief.yaml",
    "example.yaml",
    "mine.yaml",
    "search-r1.yaml",
    "RUN/config.yaml",
    "my_rewards.Brief",
    "raft.Raft",
    "RECIPE",
    "[key=value ...]",
)


def spans(text: str) -> list[str]:
    """Code within lines, a line's end in it being a space."""
    return [" ".join(span.split()) for span in INLINE.findall(FENCED.sub("", text))]


def lines(text: str) -> Iterator[str]:
    """Lines of code blocks: continued ones whole, without what a column or a comment beside them says."""
    for block in FENCED.findall(text):
        for line in re.sub(r" *\\\n *", " ", block).splitlines():
            yield re.split(r" {2,}|\s#", line.strip())[0]


@cache
def refusal(paper: str | None, text: str) -> str | None:
    """The error of a command or of overrides that rlsys refuses; None for accepted ones and for missing data files.

    paper: whose page it is.
    """
    try:
        if COMMAND.match(text):
            compose_command(shlex.split(re.split(r" [<>|] ", COMMAND.sub(r"\1", text, count=1))[0]))
        else:
            compose_anywhere([paper, f"{paper}/tiny"] if paper else ANY, [match[0] for match in ONE.finditer(text)])
    except BadInput as error:
        return None if "No such file or directory" in str(error) else str(error)
    except SystemExit:  # --help
        pass
    return None


def compose_command(words: Sequence[str]) -> None:
    options = parse(list(words))
    config, overrides = getattr(options, "config", None), getattr(options, "overrides", [])
    if config is not None and overrides:
        (last_recipe if options.command in ("score", "play") else compose)(config, overrides)
    elif options.command in ("train", "eval", "generate", "score", "play") and config != "CONFIG":
        find_config(config)


def compose_anywhere(configs: Sequence[str], overrides: Sequence[str]) -> None:
    """Raises what the first of the recipes says, where none takes them."""
    refused = []
    for config in configs:
        try:
            compose(config, overrides)
            return
        except BadInput as error:
            refused.append(error)
    raise refused[0]


def printed(text: str) -> Iterator[tuple[str, bool]]:
    """Commands and overrides, and whether they stand in a line, where a command may be named without its arguments."""
    for line in lines(text):
        yield from ((part, False) for part in line.split(" && ") if COMMAND.match(part))
    for span in spans(text):
        if COMMAND.match(span) or (OVERRIDES.fullmatch(span) and span not in NO_KEYS):
            yield span, True


@every_page
def test_commands_and_overrides_of_a_page_are_taken(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper = page.parent.name if "configs" in page.parts else None
    for text, in_a_line in printed(page.read_text()):
        if not any(name in text for name in A_READERS):
            why = refusal(paper, text)
            incomplete = in_a_line and why and re.search("arguments are required|expected one argument", why)
            assert why is None or incomplete, f"{text}: {why}"


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    heads = re.findall(r"(?m)^#+ (.*)$", FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", head.casefold()).replace(" ", "-") for head in heads}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?s)```.*?```|`[^`]*`", "", page.read_text())
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


@every_page
def test_a_paper_is_linked_by_its_number(page: Path) -> None:
    for number, linked in re.findall(r"arXiv (\d{4}\.\d{5})\]\(([^)]*)\)", page.read_text()):
        assert linked == f"https://arxiv.org/abs/{number}"


@every_page
def test_files_tests_keys_and_figures_that_a_page_names_exist(page: Path) -> None:
    code = "\n".join(spans(page.read_text()))
    places = (ROOT, ROOT / "tests")
    paths = [path for path in PATH.findall(code) if "mine.py" not in path]  # the reader's
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []
    for path, name in re.findall(r"([\w/]+\.py)::(test_\w+)", code):
        file = next(place / path for place in places if (place / path).exists())
        assert f"def {name}(" in file.read_text(), f"{path}::{name}"
    keys = {key for key in KEY.findall(code) if not key.startswith(BELOW) and not key.endswith((".py", ".yaml"))}
    sections = {full[: len(key)] for full in KEYS for key in keys if full.startswith(f"{key}.")}
    assert keys - KEYS - sections - NO_KEYS == set()
    figures = {name for names in re.findall(r"--figures ([a-z,]+)", code) for name in names.split(",")}
    assert figures <= set(FIGURES)


def test_every_law_names_its_file_and_the_test_that_holds_it() -> None:
    laws = re.split(r"(?m)^[0-9]+\. ", (ROOT / "docs" / "laws.md").read_text())[1:]
    assert len(laws) == 12
    for law in laws:
        rule, _, proof = law.partition("Held by")
        assert PATH.search(rule) and "::test_" in proof, law


def test_a_law_that_is_cited_exists_and_the_first_citation_says_where() -> None:
    files = [path for folder in (*OURS, "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")]
    cited = {path: text for path in files if CITED.search(text := path.read_text()) and path != Path(__file__)}
    assert cited
    for path, text in cited.items():
        assert all(1 <= int(number) <= 12 for number in CITED.findall(text)), path
        first = CITED.search(text)
        assert first is not None and "docs/laws.md" in text[: first.end() + 40], path
