"""No code that comes with a model is ever run: whoever loads something of a model says so."""

import ast

from tests.paths import ROOT

PACKAGES = ("rlsys", "envs", "actors", "learners", "launch")


def test_what_is_loaded_of_a_model_brings_no_code() -> None:
    loading = 0
    for path in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        if "_pretrained" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                trusted = [keyword.value for keyword in node.keywords if keyword.arg == "trust_remote_code"]
                assert all(isinstance(value, ast.Constant) and value.value is False for value in trusted), path
                owner = ast.unparse(node.func.value)
                if node.func.attr == "from_pretrained" and owner.startswith("Auto"):
                    assert trusted, f"{path}:{node.lineno}"
                    loading += 1
    assert loading >= 5
