"""Two tasks of each file that Graph-RL evaluates on, in the form that `rlsys data prepare graph_rl` gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.makers.made import jsonl

START = (
    "the red block is clear, the hand is empty, the red block is on top of the blue block and the blue block is on "
    "the table"
)
GOAL = "the blue block is on top of the red block"
PLAN = (
    "unstack the red block from on top of the blue block\nput down the red block\npick up the blue block\n"
    "stack the blue block on top of the red block"
)
PUZZLE = {"options": {"A": "x, y", "B": "y, x", "C": "x, x", "D": "y, y"}, "num_blanks": 2, "blanks": ["1", "2"]}
SCRIPT = {"steps": {"step0": "pour", "step1": "open"}, "constraints": [["step1", "step0"]]}


def graph(edges: str, answer: str) -> dict[str, Any]:
    return {"node_number": 4, "graph": edges, "question": "0 1", "answer": answer}


def rows() -> dict[str, list[dict[str, Any]]]:
    """By file below data/graph_rl."""
    two = ("one", "two")
    block = {"initial": START, "goal": GOAL}
    down = block | {"goal": "the red block is on the table"}
    return {
        "train": [graph(f"(0,{n})", a) for n, a in ((1, "yes"), (2, "no"))],
        "test": [graph(f"(2,3) (0,{n})", a) for n, a in ((1, "yes"), (2, "no"))],
        "real/strategyqa": [{"question": f"Is {n} odd?", "answers": ["yes"], "decomposition": [n]} for n in two],
        "real/knowledge_crosswords": [{"question": n, "answers": ["B"], "edges": f"1 is {n}", **PUZZLE} for n in two],
        "real/wikidyk_r": [{"question": f"Who is {n}?", "answers": ["Ann"]} for n in two],
        "real/wikidyk_f": [{"question": f"{n}?", "answers": ["true"], "statement": f"Ann is {n}."} for n in two],
        "real/explagraphs": [{"question": n, "answers": ["support"], "belief": n, "argument": "it is"} for n in two],
        "real/proscript": [{"goal": f"milk {n}", **SCRIPT} for n in two],
        "real/blocksworld_plan": [block, down],
        "real/blocksworld_verify": [block | {"plan": PLAN}, down | {"plan": PLAN}],
    }  # fmt: skip


def write_real_sets(folder: Path) -> None:
    """folder: of the project, that holds `data/`."""
    for name, lines in rows().items():
        path = folder / "data" / "graph_rl" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        jsonl(path, lines)
