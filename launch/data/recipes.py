"""Which files each recipe reads, and of which public sets they are made. The first file of all is `train.jsonl`."""

from __future__ import annotations

from launch.data.derived import STEPWISE
from launch.data.records import Part, Recipe, Role
from launch.data.sets import SETS
from rlsys.errors import BadInput, nearest

CORPUS_FILE = "corpus.jsonl"
EVAL, TRAIN, CORPUS, SHOWN = Role.EVAL, Role.TRAIN, Role.CORPUS, Role.SHOWN


def _eval(name: str, source: str, *, take: int | None = None, stratify: str | None = None) -> Part:
    return Part(file=f"eval/{name}.jsonl", sources=(source,), role=EVAL, take=take, stratify=stratify)


def _graphs(file: str, split: str, role: Role) -> Part:
    """The first 500 of both kinds: their answers are yes and no as often as the paper's."""
    sources = tuple(f"nlgift_{kind}.{split}" for kind in ("connectivity", "shortest_path"))
    return Part(file=file, sources=sources, role=role, take=500, each=True, first=True)


def _corpus(file: str, *sources: str) -> Part:
    return Part(file=file, sources=sources, role=CORPUS)


PARAGRAPHS = ("musique.dev_paragraphs", "hotpotqa.dev", "2wiki.dev")

RESEARCH = Recipe(
    name="research",
    parts=(
        _eval("hotpotqa", "hotpotqa.dev"),
        _eval("2wiki", "2wiki.dev"),
        _eval("musique", "musique.dev"),
        _eval("bamboogle", "bamboogle.test"),
        Part(file="dev.jsonl", sources=("musique.dev",), role=EVAL, take=100),  # looked at every 10 steps
        _corpus(CORPUS_FILE, "musique.train_paragraphs", *PARAGRAPHS),
        Part(file="train.jsonl", sources=("musique.train",), role=TRAIN),
    ),
    missing="the paper searches Wikipedia of 2018 (`rlsys data prepare wiki18`): corpus.jsonl is the sets' paragraphs",
)

ICRL = Recipe(
    name="icrl",
    parts=(
        _eval("triviaqa", "triviaqa.test", take=500),
        _eval("hotpotqa", "hotpotqa.dev", take=500),
        _eval("2wiki", "2wiki.dev", take=500),
        _eval("musique", "musique.dev", take=500),
        _eval("bamboogle", "bamboogle.test"),
        _eval("aime24", "aime24.test"),
        _eval("aime25", "aime25.test"),
        _corpus(CORPUS_FILE, *PARAGRAPHS),
        Part(file="train.jsonl", sources=("nq.train",), role=TRAIN),
        Part(file="code_train.jsonl", sources=("dapo_math.train",), role=TRAIN),
    ),
    missing=(
        "the recipe searches Wikipedia of 2018 (`rlsys data prepare wiki18`), which has the answers to NQ and "
        "TriviaQA: corpus.jsonl is the paragraphs of the other sets, for icrl/ablations/small-corpus"
    ),
)

_GENERATED = "rlsys generate long_cot --output data/long_cot/"
_ON_WEB = "env.data=data/long_cot/webinstruct.jsonl"

LONG_COT = Recipe(
    name="long_cot",
    parts=(
        _eval("math500", "math500.test"),
        _eval("aime24", "aime24.test"),
        _eval("theoremqa", "theoremqa.test"),
        _eval("mmlu_pro", "mmlu_pro.test", take=1_000, stratify="category"),
        Part(file="train.jsonl", sources=("math.train",), role=TRAIN),
        # About 8,000 for the base model: more than the train split alone has, and no MATH-500.
        Part(
            file="train_level3to5.jsonl",
            sources=("math.train", "math.test"),
            role=TRAIN,
            where=("level", ("Level 3", "Level 4", "Level 5")),
        ),
    ),
    missing="WebInstruct: its 462k questions are published without the settings they were deduplicated with",
    own={  # configs/long_cot/README.md has the whole commands
        "distilled.jsonl": _GENERATED + "distilled.jsonl",
        "constructed.jsonl": _GENERATED + "constructed.jsonl generate.teacher.constructs=true",
        "webinstruct.jsonl": "rlsys data extract --input WebInstruct.jsonl --output data/long_cot/webinstruct.jsonl",
        "webinstruct_distilled.jsonl": f"{_GENERATED}webinstruct_distilled.jsonl --samples 1 --keep all {_ON_WEB}",
        "webinstruct_sft.jsonl": f"{_GENERATED}webinstruct_sft.jsonl --samples 2 {_ON_WEB}",
        "webinstruct_filtered.jsonl": "rlsys data solved --input data/long_cot/webinstruct_sft.jsonl "
        "--output data/long_cot/webinstruct_filtered.jsonl",
    },
)

REAL = (  # a set and its splits
    ("strategyqa", ("train",)),
    ("knowledge_crosswords", ("easy", "medi", "hard")),
    ("wikidyk_r", ("test",)),
    ("wikidyk_f", ("test",)),
    ("explagraphs", ("train",)),
    ("proscript", ("test",)),
)


def _rest(name: str) -> str:
    return f"real/rest/{name}.jsonl"


def _real(name: str, splits: tuple[str, ...]) -> tuple[Part, Part]:
    """1,000 to evaluate on, and what then remains to train on."""
    sources = tuple(f"{name}.{split}" for split in splits)
    return (
        Part(file=f"real/{name}.jsonl", sources=sources, role=EVAL, take=1_000),
        Part(file=_rest(name), sources=sources, role=TRAIN, rest=f"real/{name}.jsonl"),
    )


GRAPH_RL = Recipe(
    name="graph_rl",
    parts=(
        _graphs("test.jsonl", "test", EVAL),
        *(part for name, splits in REAL for part in _real(name, splits)[:1]),
        *(
            Part(file=f"real/{name}.jsonl", sources=(f"{name}.all",), role=EVAL, expect=500)
            for name in ("blocksworld_plan", "blocksworld_verify")
        ),
        *(
            Part(file=f"real/single/{name}.jsonl", sources=(f"real/{name}.jsonl",), role=Role.STEPS)
            for name in STEPWISE
        ),
        _graphs("train.jsonl", "train", TRAIN),
        *(part for name, splits in REAL for part in _real(name, splits)[1:]),
        *(
            Part(
                file=f"real/sft_{size}.jsonl",
                sources=tuple(_rest(name) for name, _ in REAL),
                role=SHOWN,
                take=size // len(REAL),
                each=True,
            )
            for size in (300, 1_200, 6_000)
        ),
    ),
)

SWIRL = Recipe(
    name="swirl",
    parts=(
        _eval("hotpotqa", "hotpotqa.dev", take=300),
        _eval("musique", "musique.dev", take=300),
        _eval("gsm8k", "gsm8k.test", take=300),
        _corpus("articles/hotpotqa_train.jsonl", "hotpotqa.train"),
        _corpus("articles/hotpotqa_dev.jsonl", "hotpotqa.dev"),
        _corpus("articles/musique_dev.jsonl", "musique.dev_paragraphs"),
        Part(
            file="train.jsonl",
            sources=("hotpotqa.train",),
            role=TRAIN,
            take=10_000,
            where=("level", ("medium", "hard")),
        ),
        Part(file="gsm8k_train.jsonl", sources=("gsm8k.train",), role=TRAIN),
    ),
    missing="BeerQA, which no hub has (`rlsys data prepare beerqa`), and CofCA, whose form is not known here "
    "(configs/swirl/README.md says how they are added); the 300 ids, damaged in print: ours are drawn",
)

OF_SETS = {  # those that are not one file for each split
    "wiki18": (_corpus(CORPUS_FILE, "wiki18.passages"),),
    "beerqa": (
        Part(file="dev.jsonl", sources=("beerqa.dev",), role=EVAL),
        Part(file="train.jsonl", sources=("beerqa.train",), role=TRAIN),
        _corpus("articles/dev.jsonl", "beerqa.dev"),
    ),
}
RECIPES = {recipe.name: recipe for recipe in (RESEARCH, ICRL, LONG_COT, GRAPH_RL, SWIRL)}


def recipe_of(name: str) -> Recipe:
    """A recipe, or all splits of one set. Raises BadInput with the nearest name."""
    if name in RECIPES:
        return RECIPES[name]
    if name not in SETS:
        names = (*RECIPES, *SETS)
        raise BadInput(
            f"no recipe and no public set{nearest(name, names, otherwise='')}; `rlsys data list`", where=name
        )
    if name in OF_SETS:
        return Recipe(name=name, parts=OF_SETS[name])
    public_set = SETS[name]
    splits = [split for split in public_set.splits if not split.endswith("_paragraphs")]
    held_out = [split for split in splits if split in ("dev", "test", "all")]
    order = [*held_out, *(split for split in splits if split not in held_out)]
    roles = {split: EVAL if split in held_out else TRAIN for split in order}
    parts = (Part(file=f"{split}.jsonl", sources=(f"{name}.{split}",), role=roles[split]) for split in order)
    return Recipe(name=name, parts=tuple(parts))
