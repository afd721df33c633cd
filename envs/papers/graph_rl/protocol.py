"""Graph-RL (section 2): one message, `<think>…</think><response>…</response><answer>…</answer>`, no tool.

| message | what happens | source |
|---|---|---|
| an answer | the episode ends, answered; the format is judged by the reward | paper |
| none | the episode ends, malformed | paper (the reward scores the rest without an answer) |
| the token budget is used up | the episode ends, cut off | - |
"""

from __future__ import annotations

from envs.protocols.record import Protocol, parse_answer

TAGS = ("<think>", "</think>", "<response>", "</response>", "<answer>", "</answer>")

# The paper asks for the three parts, but does not print how.
INSTRUCTION = (
    "Reply in three parts: <think>how you search</think><response>one sentence for each step, like "
    '"5 is connected to 1." or "5 -> 1 -> 6 with a total weight of 2 + 3 = 5."</response><answer>yes or no; or the '
    'shortest path and its length, like "The shortest path is 5->1->6. The length of shortest path is 5."</answer>'
)


def is_well_formed(text: str) -> bool:
    """Whether each of the six tags stands exactly once, in order."""
    places = [text.find(tag) for tag in TAGS]
    return all(text.count(tag) == 1 for tag in TAGS) and places == sorted(places)


def write_parts(think: str, response: str, answer: str) -> str:
    return f"<think>{think}</think><response>{response}</response><answer>{answer}</answer>"


GRAPH_RL = Protocol(
    name="graph_rl",
    tags=TAGS,
    stop=("</answer>",),
    instruction=INSTRUCTION,
    parse=parse_answer,
    thinks=True,
)
