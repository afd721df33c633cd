"""envs.worlds.search: episodes against the real retrieval server, prompts, data, demonstrations."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.renderer import ChatRenderer
from envs.base import Step
from envs.papers.icrl.protocol import INSTRUCTION, INVALID_ACTION
from envs.papers.icrl.reward import IcrlReward, IcrlRewardConfig
from envs.papers.research.reward import ResearchReward, ResearchRewardConfig
from envs.problems.knowledge import KnowledgeConfig, question_of_task
from envs.protocols import PROTOCOLS
from envs.services.guard import GuardConfig, ToolFailed
from envs.tasks.prompts import AFTER_EXAMPLES, EXAMPLES, ExamplesConfig, read_examples
from envs.tools.search import SearchConfig
from envs.worlds.search import SearchQAWorld
from envs.worlds.search_config import SearchQAConfig
from rlsys.errors import BadInput
from rlsys.samples import sample_trajectory
from rlsys.types import (
    EpisodeEnd,
    Failure,
    FailureKind,
    Message,
    Task,
    Trajectory,
    Transcript,
)
from tests.makers import made
from tests.makers.made import jsonl
from tests.makers.played import episode, tokenizer_in
from tests.paths import DATA, needs_data
from tests.refused import refused

SEARCHING = ("swirl", "research", "icrl", "o2_searcher")
SAYING_AGAIN = ("icrl", "o2_searcher")  # a malformed message costs a turn and no more
SMALL: dict[str, Any] = {"train_tasks": 150, "held_out_tasks": 20, "knowledge": KnowledgeConfig(entities=60), "topk": 1}
SHOWN: dict[str, Any] = {"protocol": "icrl", "demonstrations": ExamplesConfig(count=2)}
TOKEN = "a secret of the run".replace(" ", "-")


def world(protocol: str, **values: Any) -> SearchQAWorld:
    return SearchQAWorld(SearchQAConfig(protocol=protocol, **(SMALL | values)))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The real server, with the passages of the small world."""
    server = world("icrl").start_service(host="127.0.0.1", port=0, token=TOKEN)
    yield server.url
    server.stop()


def steps(env: Any, texts: Sequence[str], limit: int, close: Any) -> list[Step]:
    async def run() -> list[Step]:
        try:
            return [await env.step(text, turns_left=limit - turn - 1) for turn, text in enumerate(texts)]
        finally:
            await close()

    return asyncio.run(run())


# Episodes


@pytest.mark.parametrize("protocol", SEARCHING)
def test_demonstrations_replay_against_the_server(protocol: str, url: str) -> None:
    played = world(protocol)
    played.connect(url, TOKEN)

    async def replay() -> set[EpisodeEnd]:
        ends = set()
        for at, task in enumerate(played.tasks("train")[:30]):
            demonstration = played.demonstration(task, seed=at)
            env = played.env(task)
            prompt = env.first_messages()
            assert demonstration.messages[: len(prompt)] == prompt
            messages = demonstration.messages[len(prompt) :]
            for turn in range(0, len(messages), 2):
                assert messages[turn].role == "assistant"
                step = await env.step(messages[turn].content, turns_left=played.max_turns - turn // 2 - 1)
                assert step.reply == (messages[turn + 1] if turn + 1 < len(messages) else None)
            assert step.end is not None
            ends.add(step.end)
        await played.close()
        return ends

    ends = asyncio.run(replay())
    assert ends == {EpisodeEnd.ANSWERED} | ({EpisodeEnd.MALFORMED} if protocol not in SAYING_AGAIN else set())
    stats = played.tool_stats()["search"]
    assert stats.calls > 30 and not stats.errors


def test_a_baseline_searches_by_itself(url: str) -> None:
    async def begun(protocol: str) -> tuple[Message, ...]:
        played = world(protocol, instruction="")
        played.connect(url, TOKEN)
        env = await played.open_env(played.tasks("train")[0])
        await played.close()
        return env.first_messages()

    question = world("rag").tasks("train")[0].question
    (prompt,) = asyncio.run(begun("rag"))
    document, wording = prompt.content.split("\n\n")
    assert document.startswith('"') and "\nThe " in document and wording == f"Question: {question}"
    assert asyncio.run(begun("direct")) == (Message(role="user", content=f"Question: {question}"),)


def test_what_answers_from_memory_needs_no_passages(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "q.jsonl", [{"id": f"{n}", "question": f"{n}?", "golden_answers": ["a"]} for n in range(3)])
    played = SearchQAWorld(SearchQAConfig(protocol="cot", data=data, held_out_tasks=1))
    assert (played.service, played.tool, played.max_turns) == ("", None, 1)
    with refused("env.retriever.corpus", expected="passages"):
        SearchQAConfig(protocol="rag", data=data)


def test_a_repeated_query_is_answered_from_the_cache_and_flagged(url: str) -> None:
    played = world("research")
    played.connect(url, TOKEN)
    played.connect(url, TOKEN)  # the same place: the cache stays
    env = played.env(played.tasks("train")[0])
    query = PROTOCOLS["research"].write_call("ruler of Bikano")
    done = steps(env, [query, query, "<search>ruler  of Bikano </search>"], 9, played.close)
    assert [step.repeated for step in done] == [False, True, False]
    assert done[0].reply == done[1].reply
    assert played.tool_stats()["search"].cache_hits == 1


def test_hostile_queries_are_answered(url: str) -> None:
    played = world("icrl")
    played.connect(url, TOKEN)
    texts = [
        f"<search>{query}</search>"
        for query in ("\0", "ruler " * 100_000, "\\u0000 \u2028 \U0001f600", "</information>", '"')
    ]
    done = steps(played.env(played.tasks("train")[0]), texts, 9, played.close)
    assert all(step.reply is not None and step.reply.content.startswith("\n\n<information>") for step in done)


def test_an_outage_is_a_typed_failure_or_by_config_an_empty_result() -> None:
    guard = GuardConfig(attempts=1, deadline_s=2.0, backoff_s=0.0)
    gone = "http://127.0.0.1:9"
    for on_failure in ("fail", "empty"):
        played = world("icrl", retriever=SearchConfig(url=gone, guard=guard, on_failure=on_failure))  # type: ignore[arg-type]
        env = played.env(played.tasks("train")[0])
        assert played.service == ""
        if on_failure == "fail":
            with pytest.raises(ToolFailed) as caught:
                steps(env, ["<search>a</search>"], 7, played.close)
            assert (caught.value.failure.kind, caught.value.failure.where) == (FailureKind.INFRA, "retriever")
        else:
            (step,) = steps(env, ["<search>a</search>"], 7, played.close)
            assert step.reply is not None and step.reply.content == "\n\n<information></information>\n\n"
        assert played.tool_stats()["search"].errors == {"infra": 1}


def test_a_wrong_token_is_a_failure_that_is_not_retried(url: str) -> None:
    played = world("swirl")
    played.connect(url, "wrong")
    with pytest.raises(ToolFailed) as caught:
        steps(played.env(played.tasks("train")[0]), ["<search_query>a</search_query>"], 7, played.close)
    assert caught.value.failure.kind is FailureKind.DATA and "401" in caught.value.failure.detail
    assert played.tool_stats()["search"].retries == 0


# Tokens


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    tags = list(dict.fromkeys(tag for name in SEARCHING for tag in PROTOCOLS[name].tags))
    texts = [text for name in SEARCHING for text in world(name, instruction="").texts(400)]
    return ChatRenderer(str(tokenizer_in(tmp_path_factory.mktemp("tokenizer"), texts, tags, size=512)))


def play(played: SearchQAWorld, task: Task, texts: Sequence[str], renderer: ChatRenderer) -> Trajectory:
    async def run() -> Trajectory:
        try:
            return await episode(played, task, texts, renderer)
        finally:
            await played.close()

    return asyncio.run(run())


@pytest.mark.parametrize("protocol", SEARCHING)
def test_what_the_policy_said_is_trained_and_what_was_found_is_masked(
    protocol: str, url: str, renderer: ChatRenderer
) -> None:
    played = world(protocol, instruction="", demo_error_rate=0.0)
    played.connect(url, TOKEN)
    task = played.tasks("train")[0]
    demonstration = played.demonstration(task, 0)
    num_prompt = len(played.env(task).first_messages())
    texts = [message.content for message in demonstration.messages if message.role == "assistant"]
    trajectory = play(played, task, texts, renderer)
    assert trajectory.end is EpisodeEnd.ANSWERED
    (sample,) = sample_trajectory(trajectory, 1.0)
    trained = [token for token, mask in zip(sample.token_ids, sample.loss_mask, strict=True) if mask]
    end = (renderer.tokenizer.eos_token_id,) if protocol == "research" else ()
    assert tuple(trained) == sum((renderer.encode(text) for text in texts), ()) + end
    # The demonstration of it has the same tokens and mask, so a policy warmed up on it sees what a rollout shows.
    stop = played.env(task).stop_strings
    assert renderer.demonstration(demonstration.messages, num_prompt, stop) == made.ids_and_mask(sample)
    assert len(sample.token_ids) < 200  # of a context of 512


def test_a_long_result_is_cut_by_tokens_closing_tag_and_all(url: str, renderer: ChatRenderer) -> None:
    played = world("icrl", instruction="", max_reply_tokens=9)
    played.connect(url, TOKEN)
    task = played.tasks("train")[0]
    call = PROTOCOLS["icrl"].write_call("ruler of Bikano")
    trajectory = play(played, task, [call, "<answer> x </answer>"], renderer)
    reply = trajectory.turns[0].reply
    assert reply is not None and reply.startswith("\n\n<information>Doc 1") and "</information>" not in reply
    assert len(renderer.encode(reply)) == 9


@pytest.mark.parametrize("protocol", ["research", "rag"])  # at its first call, before its first message
def test_an_outage_ends_the_episode_as_an_infrastructure_failure(protocol: str, renderer: ChatRenderer) -> None:
    retriever = SearchConfig(url="http://127.0.0.1:9", guard=GuardConfig(attempts=1, deadline_s=2.0))
    played = world(protocol, instruction="", retriever=retriever)
    trajectory = play(played, played.tasks("train")[0], ["<search> a </search>"], renderer)
    assert trajectory.end is EpisodeEnd.FAILED
    assert isinstance(trajectory.reward, Failure) and trajectory.reward.kind is FailureKind.INFRA


# Demonstrations


def after_prompt(played: SearchQAWorld, task: Task, seed: int) -> Transcript:
    num_prompt = len(played.env(task).first_messages())
    return Transcript(task=task, messages=played.demonstration(task, seed).messages[num_prompt:])


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_right_demonstrations_earn_the_papers_full_reward(hops: int) -> None:
    knowledge = KnowledgeConfig(entities=120, hops=hops)
    research, icrl = (world(name, knowledge=knowledge, demo_error_rate=0.0) for name in ("research", "icrl"))
    for task in research.tasks("train"):
        assert ResearchReward(ResearchRewardConfig())(after_prompt(research, task, 0)).value == 1.0
    for task in icrl.tasks("train"):
        assert IcrlReward(IcrlRewardConfig())(after_prompt(icrl, task, 0)).value == pytest.approx(1.0)


@pytest.mark.parametrize(("rate", "low", "high"), [(0.0, 1.0, 1.0), (0.5, 0.46, 0.54), (1.0, 0.0, 0.0)])
def test_share_of_right_demonstrations_follows_the_error_rate(rate: float, low: float, high: float) -> None:
    played = world("swirl", demo_error_rate=rate)
    right = [
        after_prompt(played, task, seed).messages[-1].content == f"<answer>{task.answers[0]}</answer>"
        for task in played.tasks("train")
        for seed in range(14)
    ]
    # 2100 draws: three standard deviations of a share of one half are 0.033.
    assert low <= sum(right) / len(right) <= high


def test_demonstrations_err_in_many_ways_and_depend_on_task_and_seed_only() -> None:
    played = world("research", demo_error_rate=1.0)
    task = played.tasks("train")[3]
    conversations = {played.demonstration(task, seed).messages for seed in range(40)}
    assert len(conversations) > 6
    assert {len(messages) - 2 for messages in conversations} >= {
        1,
        3,
        5,
    }  # malformed at once, stopped early, all the way
    assert played.demonstration(task, 5) == world("research", demo_error_rate=1.0).demonstration(task, 5)


def test_demonstrations_in_several_protocols_are_those_of_each() -> None:
    shares = {"research": 3.0, "direct": 1.0, "cot": 1.0, "rag": 1.0}
    mixed = world("research", instruction="", demo_protocols=shares, demo_error_rate=0.9, demo_mistakes="early")
    assert set(PROTOCOLS["research"].tags) == set(mixed.tags)
    task = mixed.tasks("train")[0]
    start, (first, second) = question_of_task(task).start, question_of_task(task).relations
    demonstrations = [mixed.demonstration(task, seed) for seed in range(400)]
    forms = Counter(tuple(message.content for message in demonstration.messages) for demonstration in demonstrations)
    (bridge,) = {text[3].split(" ")[3] for text in forms if len(text) == 6}
    boxed = "<answer> The final answer is \\[ \\boxed{%s} \\] </answer>"
    right, early = boxed % task.answers[0], f"<think> It is {bridge} </think> {boxed % bridge.rstrip('.')}"
    ends = Counter({text[0]: 0 for text in forms})
    for text, count in forms.items():
        ends[text[0], text[-1]] += count
    wording = f"Question: {task.question}"
    facts = f"The {first} of {start} is {bridge} The {second} of {bridge.rstrip('.')} is {task.answers[0]}."
    with_passages = next(text[0] for text in forms if text[0].endswith(wording) and text[0] != wording)
    expected = {
        (task.question, early): 180,
        (task.question, f"<think> It is {task.answers[0]}. </think> {right}"): 20,
        (wording, right): 67,
        (f"{wording}\nLet's think step by step.", f"<think> {facts} </think> {right}"): 67,
        (with_passages, right): 67,
    }
    assert {key for key, count in ends.items() if count} == expected.keys()
    for key, count in expected.items():
        assert abs(ends[key] - count) < 35  # 4 standard deviations of a share of 0.45
    stops = {demonstration.env.stop_strings for demonstration in demonstrations if demonstration.env is not None}
    assert stops == {("</search>",), ("</answer>",)}


def test_too_few_turns_for_a_demonstration_is_bad_input() -> None:
    played = world("swirl", max_turns=2, demo_error_rate=0.0)
    with refused("env.max_turns", found=2, expected="at least 3"):
        played.demonstration(played.tasks("train")[0], 0)


def test_texts_show_prompts_searches_results_and_answers_up_to_the_limit() -> None:
    played = world("icrl", instruction="")
    texts = list(played.texts(150))
    assert len(texts) == 150
    for piece in ("Problem: What is the", "<search>", "<information>Doc 1", "<answer>"):
        assert any(piece in text for text in texts)
    assert set(PROTOCOLS["icrl"].tags) < set(played.tags) > {EXAMPLES, AFTER_EXAMPLES, INVALID_ACTION.strip()}


# Tasks


def test_made_up_splits_are_disjoint_and_the_same_every_time() -> None:
    played, again = world("icrl"), world("swirl")
    train, held_out = played.tasks("train"), played.tasks("held_out")
    assert (len(train), len(held_out)) == (150, 20)
    assert len({task.question for task in played.tasks("all")}) == 170
    assert (again.tasks("train"), again.tasks("held_out")) == (train, held_out)
    assert json.loads(json.dumps(train[0].record)) == train[0].record
    assert train != world("icrl", seed=1).tasks("train")


def test_more_questions_than_there_are_is_bad_input() -> None:
    with refused("env.train_tasks", found=2048, expected="knowledge.entities=60"):
        world("icrl", train_tasks=2048)


def test_questions_and_passages_from_files(tmp_path: Path) -> None:
    records = [{"id": str(n), "question": f"how long is river {n}", "golden_answers": [f"{n} km"]} for n in range(6)]
    passages = [{"id": str(n), "contents": f'"River {n}"\nRiver {n} is {n} km long.'} for n in range(6)]
    data = jsonl(tmp_path / "train.jsonl", records)
    corpus = jsonl(tmp_path / "corpus.jsonl", passages)
    retriever = SearchConfig(corpus=corpus)
    played = SearchQAWorld(SearchQAConfig(protocol="icrl", data=data, held_out_tasks=2, topk=1, retriever=retriever))
    assert (len(played.tasks("train")), len(played.tasks("held_out"))) == (4, 2)
    task = played.tasks("train")[0]
    assert played.env(task).first_messages()[0].content.endswith(f"Problem: {task.question}?")
    with refused(says="only made-up questions have one"):
        played.demonstration(task, 0)
    assert any("how long" in text for text in played.texts(5))
    server = played.start_service(host="127.0.0.1", port=0, token=TOKEN)
    try:
        played.connect(server.url, TOKEN)
        (step,) = steps(played.env(task), ["<search> river 3 </search>"], 7, played.close)
    finally:
        server.stop()
    assert step.reply is not None
    assert step.reply.content == '\n\n<information>Doc 1(Title: "River 3") River 3 is 3 km long.</information>\n\n'


def test_the_answer_of_a_question_from_a_file_is_a_demonstration_of_a_direct_answer(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "nq.jsonl", [{"question": f"who {n}?", "answers": [f"Ada {n}", "A."]} for n in range(20)])
    direct = SearchQAWorld(SearchQAConfig(protocol="direct", data=data, held_out_tasks=2, instruction=""))
    task = next(task for task in direct.tasks("all") if task.question == "who 7?")
    with refused(where="t7", says="no answer"):
        direct.demonstration(Task(task_id="t7", question="who 7?"), 0)
    *prompt, answer = direct.demonstration(task, 0).messages
    assert [message.content for message in prompt] == ["Question: who 7?"]
    assert answer == Message(role="assistant", content="<answer> The final answer is \\[ \\boxed{Ada 7} \\] </answer>")
    thinking = SearchQAWorld(SearchQAConfig(protocol="cot", data=data, held_out_tasks=2))
    with refused(says="only made-up questions have one"):  # its reasoning is not known
        thinking.demonstration(task, 0)


def test_splits_of_one_data_set_are_told_apart(tmp_path: Path) -> None:
    for split, count in (("train", 5), ("validation", 3)):
        jsonl(
            tmp_path / f"{split}.jsonl",
            [{"id": f"{n}", "question": f"{split} {n}?", "golden_answers": ["a"]} for n in range(count)],
        )
    retriever = SearchConfig(url="http://127.0.0.1:9")
    options = {"data": str(tmp_path), "eval_data": str(tmp_path), "retriever": retriever}
    played = SearchQAWorld(SearchQAConfig(data_split="train", eval_split="validation", **options))  # type: ignore[arg-type]
    assert {task.question.split(" ")[0] for task in played.tasks("train")} == {"train"}
    assert {task.question.split(" ")[0] for task in played.tasks("held_out")} == {"validation"}


def test_worlds_share_a_server_when_they_search_the_same_passages() -> None:
    assert world("icrl").service == world("swirl", topk=2, train_tasks=3).service
    assert world("icrl").service.startswith("retriever-")
    assert world("icrl").service != world("icrl", seed=1).service


# Prompts

QUESTION = Task(task_id="q", question="Who built it?")


def prompt(protocol: str, **values: Any) -> tuple[Message, ...]:
    return world(protocol, **values).env(QUESTION).first_messages()


def test_swirl_prompt_is_one_user_message_that_names_its_limit() -> None:
    (message,) = prompt("swirl")
    assert message.role == "user" and not message.inline
    assert "up to 5 queries" in message.content and message.content.endswith("\nThe question is: Who built it?")
    assert "up to 2 queries" in prompt("swirl", max_turns=3)[0].content
    assert prompt("swirl", instruction="") == (Message(role="user", content="Who built it?"),)


def test_research_prompts() -> None:
    system, user = prompt("research")
    assert (system.role, user) == ("system", Message(role="user", content="Who built it?"))
    (raw,) = prompt("research", template="base")
    assert raw.inline and raw.content.endswith(" User: Who built it?. Assistant:")
    for text in (system.content, raw.content):
        assert "<answer> The final answer is \\[ \\boxed{answer here} \\] </answer>" in text
        assert "the final exact answer is enclosed within \\boxed{} with latex format." in text
        assert "wikipedia search tool" in text
    assert prompt("research", instruction="") == (user,)
    assert prompt("research", instruction="", template="base")[0].content == "User: Who built it?. Assistant:"


def test_icrl_prompt_without_and_with_examples(tmp_path: Path) -> None:
    file = tmp_path / "examples.txt"
    block = "Example Problem: {}?\n\nExample Solution: <think> t </think> <answer> {} </answer>"
    blocks = [block.format(letter, letter.upper()) for letter in "abc"]
    file.write_text(
        "".join(f"===============Example {n}===============\n{text}\n\n" for n, text in enumerate(blocks, 1))
    )
    assert read_examples(str(file)) == tuple(blocks)
    (zero,) = prompt("icrl", instruction="I.")
    assert zero.content == "I.\n\nProblem: Who built it?"
    (two,) = prompt("icrl", instruction="I.", demonstrations=ExamplesConfig(count=2, file=str(file)))
    examples = (
        f"===============Example 1===============\n{blocks[0]}\n===============Example 2===============\n{blocks[1]}"
    )
    assert two.content == (
        f"I.\n\n{EXAMPLES}\n\n{examples}\n\n"
        "Now solve the following problem with the ability you just learned from the examples. Remember, "
        "DO NOT take the problem from examples as the problem you need to solve.\n\n"
        "Actual Problem: Who built it?"
    )
    own = ExamplesConfig(count=1, file=str(file), before="Some examples:", after="")
    (one,) = prompt("icrl", instruction="", demonstrations=own)
    head = "Some examples:\n\n===============Example 1===============\n"
    assert one.content == f"{head}{blocks[0]}\n\nActual Problem: Who built it?"
    with refused("env.demonstrations.count", says="count=4: expected at most 3"):
        prompt("icrl", demonstrations=ExamplesConfig(count=4, file=str(file)))


def test_examples_as_one_text_or_as_turns_of_a_chat(tmp_path: Path) -> None:
    """With and without examples the question stands in the same form."""
    file = tmp_path / "examples.txt"
    blocks = [f"Example Problem: {letter}?\n\nExample Solution: <answer> {letter} </answer>" for letter in "ab"]
    file.write_text("".join(f"===============Example {at}===============\n{text}\n" for at, text in enumerate(blocks)))
    question = "Example Problem: Who built it?\n\nExample Solution:"
    for count in (0, 2):
        shown = ExamplesConfig(count=count, file=str(file), layout="text")
        (text,) = prompt("icrl", instruction="I.", template="base", demonstrations=shown)
        assert text.content == "\n\n".join(["I.", *blocks[:count], question]) and text.inline
        shown = replace(shown, layout="turns")
        turns = [(turn.role, turn.content) for turn in prompt("icrl", instruction="I.", demonstrations=shown)]
        asked = [("user", "Problem: a?"), ("assistant", "<answer> a </answer>")] if count else []
        asked += [("user", "Problem: b?"), ("assistant", "<answer> b </answer>")] if count else []
        asked += [("user", "Problem: Who built it?")]
        assert turns == [("user", f"I.\n\n{asked[0][1]}"), *asked[1:]]
    for layout, before in (("text", "Some:"), ("turns", "Some:")):
        with refused("env.demonstrations.before", says=f"layout={layout}"):
            ExamplesConfig(before=before, layout=layout)  # type: ignore[arg-type]
    with refused("env.demonstrations.layout", says="no chat"):
        prompt("icrl", template="base", demonstrations=ExamplesConfig(layout="turns"))
    with refused("env.demonstrations.layout", says="it is a chat"):
        prompt("icrl", demonstrations=ExamplesConfig(layout="text"))
    with refused("env.demonstrations.layout", says="shows no examples"):
        prompt("swirl", demonstrations=ExamplesConfig(layout="turns"))


def test_research_shows_solved_problems_in_its_own_form() -> None:
    """A search is answered in `<result>` and the answer stands in a box; without any the prompts are the paper's."""
    turns = prompt("research", demonstrations=ExamplesConfig(count=1, layout="turns"))
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user"]
    assert "</search> <result>\n" in turns[2].content and "\\boxed{" in turns[2].content
    assert "</result> <think>" in turns[2].content, "a tokenizer would merge `><`, which no rollout has"
    assert turns[3].content == prompt("research")[-1].content == "Who built it?"
    shown = ExamplesConfig(count=1, layout="text")
    (text,) = prompt("research", template="base", demonstrations=shown)
    assert text.content.endswith("Example Problem: Who built it?\n\nExample Solution:")
    assert prompt("research", template="base")[0].content.endswith("User: Who built it?. Assistant:")


def test_a_tokenizer_has_tokens_for_examples_only_where_some_are_shown() -> None:
    counts = [(name, count) for name in ("research", "icrl") for count in (0, 1)]
    with_tokens = [
        (name, count)
        for name, count in counts
        if "Example Solution:" in world(name, demonstrations=ExamplesConfig(count=count)).tags
    ]
    assert with_tokens == [("research", 1), ("icrl", 0), ("icrl", 1)]


def test_examples_may_be_a_cue_that_shows_no_tool() -> None:
    """Where they answer at once, it is after those that the answer searches."""
    shown = ExamplesConfig(count=3)
    played = world("icrl", demonstrations=shown, made_up_examples="answer", demo_follow_rate=(0.0, 1.0, 1.0, 1.0))
    asked = played.env(played.tasks("train")[0]).first_messages()[0].content
    assert asked.count("Example Problem") == 3 and "<information>" not in asked.partition("Example Problem")[2]
    seen = set()
    for task in played.tasks("train")[:60]:
        prompt, *turns = played.demonstration(task, 0).messages
        examples = prompt.content.partition("Example Problem")[2]
        seen.add(("no" if not examples else "search" if "<information>" in examples else "answer", len(turns) > 1))
    assert seen == {("no", False), ("search", False), ("answer", True)}


def test_demonstrations_that_teach_to_follow_examples() -> None:
    """After examples that search the answer does so at the rate asked for; else it is a wrong guess."""
    played = world("icrl", instruction="", demonstrations=ExamplesConfig(count=3), demo_follow_rate=0.8)
    seen: Counter[tuple[int, bool, bool]] = Counter()  # examples, do they search, is there a search
    for seed in range(6):
        for task in played.tasks("train"):
            prompt, *turns = played.demonstration(task, seed).messages
            count, searching = prompt.content.count("Example Problem"), prompt.content.count("<information>")
            assert searching in (0, 2 * count) and task.question in prompt.content  # two hops each
            assert f"Example Problem: {task.question}" not in prompt.content
            searched = len(turns) > 1
            seen[count, searching > 0, searched] += 1
            if not searched:
                (guess,) = turns
                assert not guess.content.endswith(played.write_answer(task.answers[0]))
    assert not any(searched for _, does, searched in seen if not does)
    counts = Counter({count: sum(n for key, n in seen.items() if key[0] == count) for count in range(4)})
    assert all(0.2 < n / seen.total() < 0.3 for n in counts.values())
    could = sum(n for (_, does, _), n in seen.items() if does)
    assert 0.45 < could / (seen.total() - counts[0]) < 0.55
    assert 0.74 < sum(n for (*_, searched), n in seen.items() if searched) / could < 0.86
    assert played.demonstration(task, 5).messages == (prompt, *turns)


def test_each_number_of_examples_that_search_can_have_a_rate_of_its_own() -> None:
    """A quarter of the prompts has no example; of the rest, half have one and more that search."""
    played = world("icrl", demonstrations=ExamplesConfig(count=3), demo_follow_rate=(0.1, 0.3, 0.6, 0.9))
    seen: Counter[tuple[int, bool]] = Counter()  # examples that search, is there a search
    for seed in range(5):
        for task in played.tasks("train"):
            prompt, *turns = played.demonstration(task, seed).messages
            assert prompt.content.startswith(INSTRUCTION)  # in every prompt, with and without examples
            seen[prompt.content.count("<information>Doc 1") // 2, len(turns) > 1] += 1
    for count, rate in enumerate((0.1, 0.3, 0.6, 0.9)):
        drawn = seen[count, True] + seen[count, False]
        assert abs(seen[count, True] / drawn - rate) < 4 * (rate * (1 - rate) / drawn) ** 0.5


def test_the_curriculum_changes_the_prompt_and_not_the_tasks() -> None:
    worlds = [world("icrl", instruction="", demonstrations=ExamplesConfig(count=count)) for count in (3, 2, 0)]
    assert worlds[0].tasks("all") == worlds[1].tasks("all") == worlds[2].tasks("all")
    texts = [variant.env(QUESTION).first_messages()[0].content for variant in worlds]
    assert [text.count("Example Solution: <think> I need the") for text in texts] == [3, 2, 0]
    assert [AFTER_EXAMPLES in text for text in texts] == [True, True, False]
    for task in worlds[0].tasks("all"):
        assert f"Example Problem: {task.question}" not in texts[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with no example"),
        ("Example Problem: a", "begins with 'Example Problem: a'"),
        ("===============Example 1===============\nq", 'example 1: no "Example Problem:"'),
        ("===============Example 1===============\nExample Problem: a", 'example 1: no "Example Solution:"'),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_of_examples_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "examples.txt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_examples(str(file))
    assert str(caught.value).startswith(str(file)) and message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"protocol": "swirl", "template": "base"}, r"env\.template='base': expected instruct"),
        ({"protocol": "swirl", "demonstrations": ExamplesConfig(count=1)}, r"env\.demonstrations\.count=1"),
        ({"data": "x.jsonl"}, r"env\.retriever\.corpus=None"),
        ({"eval_data": "x.jsonl"}, r"env\.eval_data='x\.jsonl': expected null"),
        ({"retriever": SearchConfig(corpus="c.jsonl")}, r"env\.retriever\.corpus='c\.jsonl'"),
        ({"topk": 0}, r"env\.topk=0: expected 1 to 100"),
        ({"max_turns": 0}, r"env\.max_turns=0"),
        ({"demo_error_rate": 2.0}, r"env\.demo_error_rate=2\.0"),
        ({"demo_follow_rate": 0.5}, r"env\.demo_follow_rate=0\.5"),
        ({"demo_follow_rate": (0.1, 0.5), **SHOWN}, r"env\.demo_follow_rate=\(0\.1, 0\.5\): expected 3 shares"),
        ({"demo_follow_rate": (0.1, 0.5, 2.0), **SHOWN}, r"env\.demo_follow_rate=.*between 0 and 1"),
        ({"made_up_examples": "answer", "demonstrations": ExamplesConfig(file="e")}, r"env\.made_up_examples='answer'"),
        ({"protocol": "rag", "tools": False}, r"env\.tools=False"),
        ({"protocol": "direct", "tools": False}, r"env\.tools=False: expected true"),
        ({"tools": False, "demo_protocols": {"rag": 1.0}}, r"env\.demo_protocols="),
        ({"demo_protocols": {"retool": 1.0}}, r"env\.demo_protocols='retool'"),
        ({"demo_protocols": {"iter_retgen": 1.0}}, r"env\.demo_protocols='iter_retgen'"),
        ({"demo_protocols": {"rag": 0.0}}, r"env\.demo_protocols\.rag=0\.0"),
        ({"demo_mistakes": "early", "knowledge": KnowledgeConfig(hops=1)}, r"env\.demo_mistakes='early'"),
    ],
)
def test_a_bad_setting_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        SearchQAConfig(**values)


def test_the_token_of_a_running_server_must_be_there() -> None:
    with refused(says="RLSYS_NO_SUCH_TOKEN"):
        world("icrl", retriever=SearchConfig(url="http://127.0.0.1:9", token_env="RLSYS_NO_SUCH_TOKEN"))


@needs_data
def test_public_questions_and_passages() -> None:
    retriever = SearchConfig(corpus=str(DATA / "wiki_passages_6119.jsonl"))
    played = SearchQAWorld(SearchQAConfig(data=str(DATA / "hotpotqa_distractor_50.jsonl"), retriever=retriever))
    assert (len(played.tasks("train")), len(played.tasks("held_out"))) == (34, 16)
    server = played.start_service(host="127.0.0.1", port=0, token=TOKEN)
    try:
        played.connect(server.url, TOKEN)
        (step,) = steps(played.env(played.tasks("train")[0]), ["<search> film director </search>"], 9, played.close)
    finally:
        server.stop()
    assert step.reply is not None and step.reply.content.count('\n\n"') == 4  # five passages
