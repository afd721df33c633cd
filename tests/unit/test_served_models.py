"""No recipe and no command on a page asks a model that others will not serve for long: docs/judge.md has the dates.

They are compared with the day on which that table was last looked at, so that no test begins to fail by itself; a table
that nobody has looked at for long is warned of.
"""

from __future__ import annotations

import re
import runpy
import warnings
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
import yaml

from launch.config.layers import CONFIGS
from tests.paths import ROOT

DOCS = runpy.run_path(str(ROOT / "docs" / "served_models.py"))
MODELS, LOOKED_AT = DOCS["served_models"](), DOCS["looked_at"]()
SOON = timedelta(days=92)
ASKED = [  # in a command that asks somebody else, by options or by keys
    re.compile(r"--endpoint https://[^`\n]*?--model ([^\s`]+)"),
    re.compile(r"--model ([^\s`]+)[^`\n]*? --endpoint https://"),
    re.compile(r"endpoint=https://[^`\n]*?model=([^\s`]+)"),
]
IN_YAML = re.compile(r"endpoint: [^,}]*https://[^}]*?model: ([^,}\s]+)")


def endpoints(node: object) -> Iterator[str]:
    """Models at addresses on the web, anywhere in a file of keys."""
    if isinstance(node, dict):
        if str(node.get("endpoint", "")).startswith("https://"):
            yield str(node["model"])
        for child in node.values():
            yield from endpoints(child)
    elif isinstance(node, list):
        for child in node:
            yield from endpoints(child)


def asked_in(page: str) -> list[str]:
    commands = page.replace("\\\n", " ")  # continued lines
    return [model for pattern in (*ASKED, IN_YAML) for model in pattern.findall(commands)]


def named() -> dict[str, set[str]]:
    """The models that recipes and pages ask at addresses on the web, with the files that name them; without those of
    open weights, owner/name, which anybody may serve."""
    files: dict[str, set[str]] = {}
    for path in CONFIGS.rglob("*.yaml"):
        for model in endpoints(yaml.safe_load(path.read_text())):
            files.setdefault(model, set()).add(path.name)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *CONFIGS.rglob("*.md")]
    for path in pages:
        for model in asked_in(path.read_text()):
            files.setdefault(model, set()).add(path.name)
    return {model: where for model, where in files.items() if model != "NAME" and "/" not in model}


@pytest.mark.parametrize(
    "text",
    [
        "`rlsys eval x --endpoint https://host/v1 --model gone`",
        "rlsys eval x --model gone --endpoint https://host/v1",
        "rlsys train x reward.judge.endpoint=https://host/v1 \\\n  reward.judge.model=gone reward.judge.key_env=KEY",
        "reward: {judge: {endpoint: https://host/v1, model: gone}}",
    ],
)
def test_a_model_that_a_page_asks_is_read_in_each_form(text: str) -> None:
    assert asked_in(text) == ["gone"]
    assert asked_in(text.replace("https://host", "http://127.0.0.1")) == []


def test_every_named_model_is_served_for_three_months_from_when_the_table_was_looked_at() -> None:
    if date.today() > LOOKED_AT + SOON:
        warnings.warn(f"docs/judge.md: models at addresses were last looked at on {LOOKED_AT}", stacklevel=1)
    asked = named()
    assert "gemini-3.8-flash" in asked and "gpt-6-luna" in asked  # of a recipe, and of a page
    assert {model: where for model, where in asked.items() if model not in MODELS} == {}
    leaving = {model: where for model, where in asked.items() if leaves_soon(model)}
    assert leaving == {}
    assert {
        model for model in asked if MODELS[model].prices is None or "](https://" not in MODELS[model].source
    } == set()


def test_no_recipe_names_one_that_leaves_without_an_address_either() -> None:
    leaving = [name for name in MODELS if leaves_soon(name)]
    assert {"gpt-4o-mini", "o3", "gemini-1.5-pro"} <= set(leaving)
    for path in CONFIGS.rglob("*.yaml"):
        models = re.findall(r"model: ([\w.-]+)", path.read_text())
        assert not [model for model in models if model.startswith(tuple(leaving))], path


def leaves_soon(model: str) -> bool:
    leaves = MODELS[model].leaves
    return leaves is not None and leaves < LOOKED_AT + SOON
