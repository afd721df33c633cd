"""Made-up questions that take tools: a shop's prices, an encyclopedia of where things are made, and sums.

| kind | question | what answers it |
|---|---|---|
| price | What does the red lamp cost? | one call of `price` |
| made | Where is the red lamp made? | one call of `search` |
| sum | What is 34 * 7 + 5? | one call of `python` |
| both | What do the red lamp and the old chair cost together? | two calls of `price` in one message, then `python` |

Prices and places follow from the names alone: they are the same in every process and for every seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from envs.services.retriever.corpus import Document, contents
from envs.tasks.splits import is_held_out, make_generated_task
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed
from rlsys.types import Task, ToolCall

# Enough pairs for a quarter of the tasks to ask for one item's price, and a quarter for its place.
COLOURS: tuple[str, ...] = (
    "red",
    "blue",
    "green",
    "black",
    "white",
    "grey",
    "brown",
    "pink",
    "gold",
    "silver",
    "yellow",
    "purple",
)
COLOURS += ("old", "new", "small", "large", "round", "tall", "wide", "heavy", "light", "plain", "flat", "square")
THINGS: tuple[str, ...] = (
    "lamp",
    "chair",
    "table",
    "clock",
    "mirror",
    "basket",
    "kettle",
    "carpet",
    "drum",
    "ladder",
    "bell",
    "boat",
)
THINGS += ("bench", "brush", "bucket", "candle", "hammer", "jug", "pillow", "plate", "shelf", "spoon", "tent", "vase")
TOWNS = ("Bern", "Lyon", "Turin", "Oslo", "Cork", "Ghent", "Porto", "Malmo", "Split", "Graz", "Delft", "Vigo")
ITEMS = tuple(f"{colour} {thing}" for colour in COLOURS for thing in THINGS)
KINDS = ("price", "made", "sum", "both")
TOOLS = ("price", "search", "python")
UNKNOWN = "no such item"
FRUITLESS = 1000  # draws in a row without a new question, after which there are no more


def price(item: str) -> str:
    """Look up what an item costs.

    Args:
        item: Its name, such as red lamp.
    """
    return str(10 + derive_seed("price", item) % 90) if item in ITEMS else UNKNOWN


def town_of(item: str) -> str:
    return TOWNS[derive_seed("made", item) % len(TOWNS)]


def documents() -> list[Document]:
    """The encyclopedia: a passage for each item."""
    return [
        Document(id=str(at), contents=contents(item, f"The {item} is made in {town_of(item)}."))
        for at, item in enumerate(ITEMS)
    ]


@dataclass(frozen=True, slots=True)
class Errand:
    kind: str
    question: str
    items: tuple[str, ...] = ()
    sum: str = ""


def to_task(errand: Errand) -> Task:
    record = {"kind": errand.kind, "items": list(errand.items), "sum": errand.sum}
    return make_generated_task("errand", errand.question, answer_of(errand), record)


def errand_of_task(task: Task) -> Errand:
    """Raises BadInput for a task that is none of these."""
    record = task.record
    if record.get("kind") not in KINDS:
        raise BadInput("no demonstration: only made-up tasks, and records with messages, have one", where=task.task_id)
    return Errand(record["kind"], task.question, tuple(record["items"]), record["sum"])


def answer_of(errand: Errand) -> str:
    if errand.kind == "made":
        return town_of(errand.items[0])
    return str(compute(errand.sum) if errand.kind == "sum" else sum(int(price(item)) for item in errand.items))


def compute(expression: str) -> int:
    """Of products and sums of whole numbers, as they are made here."""
    total = 0
    for term in expression.split(" + "):
        product = 1
        for factor in term.split(" * "):
            product *= int(factor)
        total += product
    return total


def generate(count: int, seed: int, *, held_out: bool) -> Iterator[Task]:
    """Different questions, as many of each kind as of the others, until one kind has no more."""
    rng = random.Random(derive_seed("errands", seed, held_out))
    questions: set[str] = set()
    fruitless = 0
    while len(questions) < count and fruitless < FRUITLESS:
        errand = draw(KINDS[len(questions) % len(KINDS)], rng)
        if errand.question in questions or is_held_out(errand.question) != held_out:
            fruitless += 1
        else:
            questions.add(errand.question)
            fruitless = 0
            yield to_task(errand)


def draw(kind: str, rng: random.Random) -> Errand:
    if kind == "sum":
        written = f"{rng.randint(2, 60)} * {rng.randint(2, 9)} + {rng.randint(2, 99)}"
        return Errand(kind, f"What is {written}?", sum=written)
    if kind == "both":
        first, second = rng.sample(ITEMS, 2)
        return Errand(kind, f"What do the {first} and the {second} cost together?", (first, second))
    item = rng.choice(ITEMS)
    question = f"What does the {item} cost?" if kind == "price" else f"Where is the {item} made?"
    return Errand(kind, question, (item,))


def first_calls(errand: Errand, tool: str) -> tuple[ToolCall, ...]:
    """The first message's calls, of this tool, whether it is the right one or not."""
    arguments = errand.items or (errand.sum,)
    if tool == "python":
        written = errand.sum or ", ".join(repr(item) for item in errand.items)
        return (ToolCall(name=tool, arguments={"code": f"print({written})"}),)
    key = "item" if tool == "price" else "query"
    return tuple(ToolCall(name=tool, arguments={key: argument}) for argument in arguments)


def right_tool(errand: Errand) -> str:
    return {"made": "search", "sum": "python"}.get(errand.kind, "price")


def sum_call(first: str, second: str) -> ToolCall:
    return ToolCall(name="python", arguments={"code": f"print({first} + {second})"})


def expected_output(code: str) -> str:
    """What the programs that are made here print."""
    inside = code.removeprefix("print(").removesuffix(")")
    return str(compute(inside)) if inside[:1].isdigit() else " ".join(inside.replace("'", "").split(", "))
