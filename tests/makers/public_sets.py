"""Ten records of each public set that a recipe reads, in the form and under the file names of its publisher.

`rlsys data prepare RECIPE --from FOLDER --partial --eval-tasks 5` makes every file of every recipe of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envs.papers.graph_rl.graphs.problem import Kind, make_problem, truth
from launch.cli import run

Row = dict[str, Any]
NUMBERS = range(10)
SPLITS = {"musique": ("train", "dev"), "2wikimultihopqa": ("dev",), "bamboogle": ("test",), "triviaqa": ("test",)}
SPLITS |= {"nq": ("train",)}  # of FlashRAG's copies
BLOCKS = (
    "the red block is clear, the hand is empty, the red block is on top of the blue block and the blue block is on the "
    "table"
)
PDDL = "(unstack red blue)\n(put-down red)\n"
PLAN = "unstack the red block from on top of the blue block\nput down the red block"


def write_public_sets(folder: Path) -> None:
    """All of them below `folder`, as a user has them who has downloaded them one by one."""
    for name, rows in lines().items():
        path = _place(folder, name)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    for name, rows in tables().items():
        _write_parquet(_place(folder, name), rows)
    _place(folder, "strategyqa_train.json").write_text(json.dumps([strategy(number) for number in NUMBERS]))
    support = (f"claim {number}\targument {number}\tsupport\t(a; causes; b)(b; is a; c)\n" for number in NUMBERS)
    _place(folder, "ExplaGraphs/data/train.tsv").write_text("".join(support))


def _place(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


# -- JSON lines ------------------------------------------------------------------------------------------------------


def lines() -> dict[str, list[Row]]:
    """By file."""
    files = {
        f"FlashRAG_datasets/{name}/{split}.jsonl": [flash_rag(name, split, number) for number in NUMBERS]
        for name, splits in SPLITS.items()
        for split in splits
    }
    for split in ("train", "dev"):
        files[f"musique/data/musique_ans_v1.0_{split}.jsonl"] = [musique(split, number) for number in NUMBERS]
        for kind in Kind:
            file = f"1_semantic_pattern/{kind}/{'train' if split == 'train' else 'test'}_data.jsonl"
            files[file] = [graph(kind, number + (split == "dev") * len(NUMBERS)) for number in NUMBERS]
    for level in ("easy", "medi", "hard"):
        files[f"MC/MC_{level}.jsonl"] = [crossword(level, number) for number in NUMBERS]
    files["proscript_v1a/test.jsonl"] = [script(number) for number in NUMBERS]
    files["MATH-500/test.jsonl"] = [
        problem("held out", number)
        | {"answer": str(number), "subject": "Algebra", "level": 5, "unique_id": f"{number}"}
        for number in NUMBERS
    ]
    files["aime25/test.jsonl"] = [{"problem": f"AIME 25: {n}?", "answer": f"{n}", "id": f"{n}"} for n in NUMBERS]
    passages = ({"id": f"{n}", "contents": f'"Title {n}"\nA passage of Wikipedia, {n}.'} for n in NUMBERS)
    return files | {"wiki-18.jsonl.gz": list(passages)}


def flash_rag(name: str, split: str, number: int) -> Row:
    more: Row = {"question_decomposition": []} if name == "musique" else {}
    if name == "2wikimultihopqa":
        context = {"title": [f"Title {number}"], "content": [["A sentence.", " Another."]]}
        more = {"type": "compositional", "supporting_facts": {}, "context": context, "evidences": {}}
    question = f"{name} {split}: who is number {number}?"
    return {"id": f"{split}_{number}", "question": question, "golden_answers": [f"Ann {number}"], "metadata": more}


def musique(split: str, number: int) -> Row:
    paragraph = {
        "idx": 0,
        "title": f"Ann {number}",
        "paragraph_text": f"Ann is number {number}.",
        "is_supporting": True,
    }
    question = {
        "id": f"2hop__{number}",
        "question": f"musique {split}: who is number {number}?",
        "answer": f"Ann {number}",
    }
    steps = [{"id": 1, "question": "who", "answer": "Ann", "paragraph_support_idx": 0}]
    return {
        **question,
        "answer_aliases": [],
        "answerable": True,
        "paragraphs": [paragraph],
        "question_decomposition": steps,
    }


def graph(kind: Kind, number: int) -> Row:
    """A path of nodes and a node apart, in NLGift's raw form, with the answer of the graph."""
    edges = [(node, node + 1, 1 + node % 3) for node in range(3 + number)]
    weighted = kind is Kind.SHORTEST_PATH
    source, target, nodes = 0, 2 if weighted or number % 2 else 4 + number, 5 + number
    problem = make_problem(kind, nodes, [edge if weighted else edge[:2] for edge in edges], source, target, "")
    text = (
        ",".join("{} {} {}".format(*edge) for edge in edges)
        if weighted
        else " ".join(f"({a},{b})" for a, b, _ in edges)
    )
    answer = int(truth(problem)) if weighted else truth(problem)
    return {"node_number": nodes, "graph": text, "question": f"{source} {target}", "answer": answer}


def crossword(level: str, number: int) -> Row:
    options = {"blank 1": [f"a{number}", "b", "c"], "blank 2": ["d", "e", "f"]}
    edges = {
        "source": [f"{level} {number}", "blank 1"],
        "relation": ["wrote", "taught"],
        "target": ["blank 1", "blank 2"],
    }
    return {
        "id": f"{number}",
        **edges,
        "blanks": [*options],
        "options": options,
        "golds": {"blank 1": "A", "blank 2": "C"},
    }


def script(number: int) -> Row:
    steps = "step0: pour; step1: get a glass; step2: get the milk"
    order = "step2 -> step0; step1 -> step0"
    fields = {"flatten_input_for_edge_prediction": steps, "flatten_output_for_edge_prediction": order}
    return {"scenario": f"drink milk {number}", **fields, "edge_info": {}}


# -- tables ----------------------------------------------------------------------------------------------------------


def tables() -> dict[str, list[Row]]:
    """By file."""
    files = {
        "hendrycks_math/algebra/train-00000-of-00001.parquet": [problem("train", number) for number in NUMBERS],
        "hendrycks_math/algebra/test-00000-of-00001.parquet": [problem("test", number) for number in NUMBERS],
        "aime_2024/data/train-00000-of-00001.parquet": [
            problem("AIME 24", number) | {"answer": f"{number}", "url": "", "year": "2024"} for number in NUMBERS
        ],
        "TheoremQA/data/test-00000-of-00001.parquet": [
            {"Question": f"Theorem {n}?", "Answer": f"{n}.5", "Answer_type": "float", "Picture": None} for n in NUMBERS
        ],
        "MMLU-Pro/data/test-00000-of-00001.parquet": [choice(number) for number in NUMBERS],
        "dapo-math-17k.parquet": [dapo(number) for number in NUMBERS],
        "wikidyk/data/train-00000-of-00001.parquet": [fact(number) for number in NUMBERS],
    }
    for split in ("train", "validation"):
        file = f"hotpot_qa/distractor/{split}-00000-of-00001.parquet"
        files[file] = [hotpot(split, number) for number in NUMBERS]
    for split in ("train", "test"):
        rows = [
            {"question": f"{split}: 1 + {n}?", "answer": f"1+{n}=<<1+{n}={n + 1}>>{n + 1}\n#### {n + 1}"}
            for n in NUMBERS
        ]
        files[f"gsm8k/main/{split}-00000-of-00001.parquet"] = rows
    for task in ("task_1_plan_generation", "task_3_plan_verification"):
        files[f"planbench/{task}/train-00000-of-00001.parquet"] = [planbench(task, number) for number in NUMBERS]
    return files


def problem(split: str, number: int) -> Row:
    level = {"level": f"Level {1 + number % 5}", "type": "Algebra"}
    return {"problem": f"{split}: what is {number} + 0?", **level, "solution": f"It is \\boxed{{{number}}}."}


def choice(number: int) -> Row:
    query = {"question_id": number, "question": f"Which law has number {number}?", "options": ["one", "two", "three"]}
    key = {"answer": "B", "answer_index": 1, "cot_content": "", "category": ("law", "physics")[number % 2]}
    return {**query, **key, "src": "scratch"}


def dapo(number: int) -> Row:
    before = "Solve the following math problem step by step. The last line is the answer.\n\n"
    after = '\n\nRemember to put your answer on its own line after "Answer:".'
    prompt = [{"content": f"{before}DAPO: {number} + 1?{after}", "role": "user"}]
    truth_of = {"ground_truth": f"{number + 1}", "style": "rule"}
    return {"data_source": "math_dapo", "prompt": prompt, "ability": "MATH", "reward_model": truth_of}


def fact(number: int) -> Row:
    question = {"prompt": f"What is thing {number}?", "answer": f"a word {number}"}
    statement = {"prompt": f"Thing {number} is a word. True or false?", "answer": "true"}
    ways = json.dumps({"reliability": question, "factual": statement})
    return {"case_id": number, "fact": f"Thing {number} is a word.", "eval": ways}


def hotpot(split: str, number: int) -> Row:
    question = {"id": f"{split}{number}", "question": f"hotpot {split}: which is {number}?", "answer": f"Bo {number}"}
    level = {"type": "bridge", "level": "hard", "supporting_facts": {"title": ["Bo"], "sent_id": [0]}}
    return question | level | {"context": {"title": [f"Bo {number}"], "sentences": [["A sentence.", " Another."]]}}


def planbench(task: str, number: int) -> Row:
    """The statement of the query is asked about, after the rules; the upper block has a colour of its own."""
    verify, colour = task.startswith("task_3"), COLOURS[number]
    goal = "the blue block is clear" if number % 2 else "the red block is on the table"
    stated = f"[STATEMENT]\nAs initial conditions I have that, {BLOCKS}.\nMy goal is to have that {goal}.\n"
    suffix = f"\n{PLAN}\n[PLAN END]\n\n[VERIFICATION]" if verify else ""
    query = f"I am playing with a set of blocks.\n\n{stated}\nMy plan is as follows:\n\n[PLAN]{suffix}"
    right = "The above plan is valid." if verify else PDDL
    instance = {"task": task, "prompt_type": "oneshot", "domain": "blocksworld", "instance_id": number}
    return instance | {"query": query.replace("red", colour), "ground_truth_plan": right.replace("red", colour)}


COLOURS = ("red", "orange", "yellow", "green", "purple", "white", "black", "grey", "brown", "pink")


def strategy(number: int) -> Row:
    question = {
        "qid": f"{number}",
        "term": "t",
        "description": "d",
        "question": f"Is {number} odd?",
        "answer": number % 2 == 1,
    }
    return {
        **question,
        "facts": ["A fact."],
        "decomposition": [f"Which number is odd, {number}?", "Is #1?"],
        "evidence": [],
    }


# -- what a recipe reads ---------------------------------------------------------------------------------------------

ANSWER = {
    "prompt": [{"role": "user", "content": "What is 1 + 0?"}],
    "response": "It is \\boxed{1}.",
    "question": "1 + 0?",
}
TASK = {"question": "1 + 0?", "answers": ["1"], "solution": "1"}
OWN: dict[str, Row] = {  # files of the user's own, in the form of the commands that the recipe's page has for them
    "long_cot/constructed.jsonl": ANSWER,
    "long_cot/distilled.jsonl": ANSWER,
    "long_cot/webinstruct_distilled.jsonl": ANSWER,
    "long_cot/webinstruct_sft.jsonl": ANSWER,
    "long_cot/webinstruct.jsonl": TASK,
    "long_cot/webinstruct_filtered.jsonl": TASK,
}
HALVES = [f"data/long_cot/{name}.jsonl: 5" for name in ("distilled", "webinstruct_distilled")]
VERIFIERS = ("rule", "model", "rule-unfiltered", "model-unfiltered")
FEWER = {  # of what is counted: keys for so small files
    "long_cot/ablations/noisy-sft-50": [f"stages.sft.data={{{', '.join(HALVES)}}}"],
    **{f"long_cot/ablations/verifier-{name}": ["env.data_tasks=10"] for name in VERIFIERS},
}
PREPARED = ("research", "icrl", "long_cot", "graph_rl", "swirl", "wiki18")


def _asked(number: int) -> list[Row]:
    return [{"role": "user", "content": f"What is {number} + 0?"}]


def prepare_all(folder: Path) -> None:
    """`data/` of every recipe below `folder`, by `rlsys data prepare`; and the files of a user's own."""
    downloads = folder / "downloads"
    write_public_sets(downloads)
    for name in PREPARED:
        ask = ["data", "prepare", name, "--from", str(downloads), "--output", str(folder / "data" / name)]
        assert run([*ask, "--partial", "--eval-tasks", "5"]) == 0, name
    for name, row in OWN.items():
        rows = [row | {"question": f"{n} + 0?"} | ({"prompt": _asked(n)} if "prompt" in row else {}) for n in NUMBERS]
        (folder / "data" / name).write_text("".join(json.dumps(line) + "\n" for line in rows))
