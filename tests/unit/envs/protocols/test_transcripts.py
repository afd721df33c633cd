"""Whole episodes in each protocol, byte for byte as the papers' code writes them.

ReSearch (arXiv 2503.19470) with its baselines, ICRL, O2-Searcher, ReTool for ICRL's half with code, and SWiRL (arXiv
2504.04736, appendix A).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from envs.episode import ToolEpisode, max_turns, read_turn
from envs.protocols import PROTOCOLS, Asked, Call
from envs.protocols.retrieval import PROMPTED
from envs.services.retriever.corpus import Document
from envs.worlds.search import open_prompted_episode
from rlsys.types import EpisodeEnd, Message

DOCUMENTS = (
    Document(id="0", contents='"Pell River"\nThe Pell is a river.\nIt is 90 km long.'),
    Document(id="1", contents='"Pell"\nPell is a town on the Pell River.'),
    Document(id="2", contents='"Untold"'),
)


@dataclass
class Shelf:
    """In the tool's place: the same documents for every query."""

    documents: Sequence[Document] = DOCUMENTS
    asked: list[str] = field(default_factory=list)

    async def search(self, query: str) -> Sequence[Document]:
        self.asked.append(query)
        return self.documents


def play(name: str, *texts: str, turns: int | None = None, shelf: Shelf | None = None) -> tuple[str, EpisodeEnd | None]:
    """What stands after the prompt, user turns in brackets, and how it ended."""
    protocol = PROTOCOLS[name]
    documents = shelf or Shelf()

    async def search(query: str) -> str:
        results = [protocol.show(await documents.search(part)) for part in protocol.queries(query)]
        return "\n".join(results)

    task = Asked(question="How long is the Pell?")
    opened = open_prompted_episode(protocol, task, search) if name in PROMPTED else None
    env = ToolEpisode((), protocol, search) if opened is None else asyncio.run(opened)
    limit = max_turns(protocol, turns)
    transcript = "".join(f"[{message.content}]" for message in env.first_messages())
    for turn, text in enumerate(texts):
        transcript += text
        step = asyncio.run(env.step(text, turns_left=limit - turn - 1))
        if step.reply is None:
            assert turn + 1 == len(texts)
            return transcript, step.end
        assert step.reply.inline is (step.reply.role == "tool")
        assert step.reset_context is (name == "iter_retgen")
        transcript += step.reply.content if step.reply.inline else f"[{step.reply.content}]"
    return transcript, None


def test_swirl() -> None:
    shelf = Shelf(DOCUMENTS[:1])
    transcript = play(
        "swirl", "First the river. <search_query>Pell length </search_query>", "<answer>90 km</answer>", shelf=shelf
    )
    assert transcript == (
        "First the river. <search_query>Pell length </search_query>"
        "[Pell length -> The Pell is a river.\nIt is 90 km long.]"
        "<answer>90 km</answer>",
        EpisodeEnd.ANSWERED,
    )
    assert shelf.asked == ["Pell length"]


def test_swirl_calculator() -> None:
    protocol = PROTOCOLS["swirl_math"]
    call = read_turn(protocol, "<math_exp>48 / 2 </math_exp>", turns_left=9)
    assert call == Call("48 / 2")
    assert protocol.reply("48 / 2", "24.0") == Message(role="user", content="48 / 2 -> 24.0")


def test_swirl_after_its_last_query() -> None:
    query = "<search_query>q</search_query>"
    reply = "[q -> nothing found]"
    notice = "[No more queries are allowed. Write the answer now, enclosed by <answer> and </answer>.]"
    empty = Shelf(())
    assert play("swirl", *[query] * 6, "<answer>a</answer>", shelf=empty) == (
        (query + reply) * 5 + query + notice + "<answer>a</answer>",
        EpisodeEnd.ANSWERED,
    )
    assert len(empty.asked) == 5
    assert play("swirl", *[query] * 7, shelf=empty)[1] is EpisodeEnd.TURN_LIMIT
    assert play("swirl", query, query, query, turns=2, shelf=empty) == (
        query + reply + query + notice + query,
        EpisodeEnd.TURN_LIMIT,
    )


def test_swirl_empty_query_is_not_searched() -> None:
    shelf = Shelf()
    transcript, end = play("swirl", "<search_query> </search_query>", shelf=shelf)
    assert (transcript, end, shelf.asked) == ("<search_query> </search_query>[ -> error: empty query]", None, [])


def test_research() -> None:
    transcript = play(
        "research",
        "<think>a</think> <search> Pell </search>",
        " <think>b</think> no query </search>",
        " <think>c</think> <answer> The final answer is \\[ \\boxed{90 km} \\] </answer>",
    )
    assert transcript == (
        "<think>a</think> <search> Pell </search>"
        ' <result>\n"Pell River"\nThe Pell is a river.\nIt is 90 km long.\n\n"Pell"\nPell is a town on the Pell River.'
        '\n\n"Untold"\n</result>'
        " <think>b</think> no query </search> <result>\nnothing to search\n</result>"
        " <think>c</think> <answer> The final answer is \\[ \\boxed{90 km} \\] </answer>",
        EpisodeEnd.ANSWERED,
    )
    assert play("research", "<search>a</search>", shelf=Shelf(()))[0] == "<search>a</search> <result>\n\n</result>"
    assert play("research", "<think>a</think> I do not know.")[1] is EpisodeEnd.MALFORMED


def test_icrl() -> None:
    transcript = play(
        "icrl",
        "<think> a </think> <search> Pell </search>",
        "Hm.",
        "<think> b </think> <answer> 90 km </answer>",
    )
    assert transcript == (
        "<think> a </think> <search> Pell </search>"
        '\n\n<information>Doc 1(Title: "Pell River") The Pell is a river.\nIt is 90 km long.\n'
        'Doc 2(Title: "Pell") Pell is a town on the Pell River.\n'
        'Doc 3(Title: "Untold")</information>\n\n'
        "Hm."
        "\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>. "
        "If I want to give the final answer, I should put the answer between <answer> and </answer>. "
        "Let me try again.\n"
        "<think> b </think> <answer> 90 km </answer>",
        EpisodeEnd.ANSWERED,
    )
    assert play("icrl", "<search> a </search>", shelf=Shelf(()))[0].endswith("\n\n<information></information>\n\n")


def test_icrl_searches_six_times_and_speaks_once_more() -> None:
    shelf = Shelf(())
    search, block = "<search> q </search>", "\n\n<information></information>\n\n"
    assert play("icrl", *[search] * 7, shelf=shelf) == ((search + block) * 6 + search, EpisodeEnd.TURN_LIMIT)
    assert len(shelf.asked) == 6
    # A malformed message costs a turn too, and in the last one nothing is said any more.
    assert play("icrl", *["?"] * 7)[1] is EpisodeEnd.MALFORMED
    assert play("icrl", *["?"] * 6, "<answer> a </answer>")[1] is EpisodeEnd.ANSWERED


def test_retool() -> None:
    protocol = PROTOCOLS["retool"]
    text = protocol.write_call("print(6 * 7)")
    assert text == "<code>\n```python\nprint(6 * 7)\n```\n</code>"
    assert read_turn(protocol, text, turns_left=9) == Call("print(6 * 7)")
    reply = protocol.reply("print(6 * 7)", "42\n")
    assert reply == Message(role="tool", content="\n<interpreter>\n42\n</interpreter>\n\n", inline=True)
    assert protocol.reply("", protocol.blank).content == "\n<interpreter>\nNone</interpreter>\n\n"
    assert protocol.write_answer("42") == "<answer>\\boxed{42}</answer>"


def test_o2_searcher() -> None:
    shelf = Shelf(DOCUMENTS[1:])
    transcript = play(
        "o2_searcher",
        "<think>a</think><search>\n<query>Pell </query>\n<query>Pell River</query>\n</search>",
        "<search>Pell</search>",
        "Hm.",
        "<think>b</think><answer>90 km</answer>",
        shelf=shelf,
    )
    learnings = '"Pell"\nPell is a town on the Pell River. "Untold"'
    assert transcript == (
        "<think>a</think><search>\n<query>Pell </query>\n<query>Pell River</query>\n</search>"
        f"[Search learnings: <learnings>{learnings}\n{learnings}</learnings>.\n]"
        "<search>Pell</search>"
        "[Search learnings: <learnings></learnings>.\n]"
        "Hm."
        "[The response you attempted before is invalid. If you plan to execute actions like SEARCH, you need to "
        "enclose the SEARCH queries within the <search> and </search> tags. Furthermore, the required queries for the "
        "SEARCH action should be placed between the <query> and </query> tags. Moreover, if you wish to present the "
        "final output for the initial query, you must wrap the result within the <answer> and </answer> tags.\n]"
        "<think>b</think><answer>90 km</answer>",
        EpisodeEnd.ANSWERED,
    )
    assert shelf.asked == ["Pell", "Pell River"]


def test_o2_searcher_searches_four_times_with_five_queries_at_most() -> None:
    shelf = Shelf(())
    search = PROTOCOLS["o2_searcher"].write_call("q")
    assert search == "<search>\n<query>q</query>\n</search>"
    transcript, end = play("o2_searcher", *[search] * 5, shelf=shelf)
    assert (transcript.count("<learnings>"), end, len(shelf.asked)) == (4, EpisodeEnd.TURN_LIMIT, 4)
    shelf = Shelf(())
    play("o2_searcher", "<search>" + "<query>q</query>" * 100 + "</search>", shelf=shelf)
    assert len(shelf.asked) == 5


# The baselines: the environment searches by itself.

PASSAGES = (
    '"Pell River"\nThe Pell is a river.\nIt is 90 km long.\n\n"Pell"\nPell is a town on the Pell River.\n\n"Untold"'
)
BOXED = "<answer> The final answer is \\[ \\boxed{90 km} \\] </answer>"
ANSWERED, MALFORMED = EpisodeEnd.ANSWERED, EpisodeEnd.MALFORMED


def test_direct_and_cot_never_search() -> None:
    shelf = Shelf()
    assert play("direct", BOXED, shelf=shelf) == (BOXED, ANSWERED)
    assert play("direct", "<search>a</search>", shelf=shelf) == ("<search>a</search>", MALFORMED)
    assert play("cot", f"<think> a </think> {BOXED}", shelf=shelf) == (f"<think> a </think> {BOXED}", ANSWERED)
    assert shelf.asked == []


def test_rag_searches_the_question_once() -> None:
    shelf = Shelf()
    transcript, end = play("rag", BOXED, shelf=shelf)
    assert (transcript, end) == (f"[{PASSAGES}\n\nQuestion: How long is the Pell?]{BOXED}", ANSWERED)
    assert shelf.asked == ["How long is the Pell?"]
    assert play("rag", "<search>a</search>", shelf=shelf)[1] is MALFORMED


def test_iter_retgen_searches_with_its_own_answers_in_new_contexts() -> None:
    shelf = Shelf(DOCUMENTS[2:])
    prompt = '["Untold"\n\nQuestion: How long is the Pell?\nLet\'s think step by step.]'
    transcript, end = play(
        "iter_retgen", "<think> A river. </think> Hm.", f"<think>b</think>{BOXED}", BOXED, shelf=shelf
    )
    assert (transcript, end) == (
        f"{prompt}<think> A river. </think> Hm.{prompt}<think>b</think>{BOXED}{prompt}{BOXED}",
        ANSWERED,
    )
    assert shelf.asked == [
        "How long is the Pell?",
        "How long is the Pell? A river. Hm.",
        "How long is the Pell? b The final answer is \\[ \\boxed{90 km} \\]",
    ]
    assert play("iter_retgen", BOXED, "a", "b", shelf=shelf)[1] is MALFORMED


def test_ircot_searches_every_sentence() -> None:
    shelf = Shelf(DOCUMENTS[2:])
    sentence = "<think> The Pell is a river. </think>"
    transcript, end = play("ircot", sentence, BOXED, shelf=shelf)
    assert (transcript, end) == (f'["Untold"\n\nQuestion: How long is the Pell?]{sentence}["Untold"]{BOXED}', ANSWERED)
    assert shelf.asked == ["How long is the Pell?", "The Pell is a river."]
    notice = "[No more passages. Write the answer now, enclosed by <answer> and </answer>.]"
    transcript, end = play("ircot", *[sentence] * 9, BOXED, shelf=shelf)
    assert transcript.endswith(f"{sentence}{notice}{BOXED}") and end is ANSWERED
    assert play("ircot", *[sentence] * 10, shelf=shelf)[1] is EpisodeEnd.TURN_LIMIT
