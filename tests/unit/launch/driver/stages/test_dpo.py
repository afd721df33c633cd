"""Stages that learn from given answers, with the real driver and a bandit for a model; and the files they read."""

import asyncio
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from launch.driver.run.first_delivery import PROBE_TOKENS
from launch.driver.run.tasks import StopRequested
from launch.driver.stages.datasets import open_data
from launch.driver.stages.dpo import pair_loss
from launch.driver.stages.supervised import samples_of
from rlsys.batch import UpdateReport
from rlsys.config.evaluation import EvalConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.examples import Example, read_answer, read_pair
from rlsys.metrics import merge
from rlsys.types import Group, Message, ToolOffer
from tests.fakes import bandit
from tests.fakes.parts import BanditLearner, BanditPool
from tests.makers import made
from tests.makers.made import jsonl
from tests.refused import refused
from tests.unit.launch.driver.stages import test_rl as driver

# -- files ------------------------------------------------------------------------------------------------------------


class Renderer(bandit.Renderer):
    """Letters are tokens; the end of a turn is 0."""

    tokenizer = SimpleNamespace(get_vocab=lambda: {"0": 0, "1": 1}, chat_template="")
    marks = ("<|end|>",)

    def demonstration(
        self,
        messages: Sequence[Message],
        num_prompt: int,
        stop: Sequence[str],
        *,
        truncated: bool = False,
        offer: ToolOffer | None = None,
    ) -> Any:
        ids, mask = [7], [0]
        for index, message in enumerate(messages):
            ids += map(ord, message.content)
            mask += [int(index >= num_prompt and message.role == "assistant")] * len(message.content)
        return tuple(ids), tuple(mask)


def texts(example: Example) -> list[list[str]]:
    parts = [example.prompt, *(answer.messages for answer in example.answers)]
    return [[f"{message.role}: {message.content}" for message in messages] for messages in parts]


def test_pairs_and_answers_from_elsewhere() -> None:
    plain = read_pair({"prompt": "Is 0 connected to 2?", "chosen": "Yes.", "rejected": "No."}, "line 1")
    assert texts(plain) == [["user: Is 0 connected to 2?"], ["assistant: Yes."], ["assistant: No."]]
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    for record in (
        {"messages": chat},
        {"prompt": chat[:2], "messages": chat[2:]},
        {"prompt": chat[:2], "response": "a"},
    ):
        assert texts(read_answer(record, "line 1")) == [["system: s", "user: u"], ["assistant: a"]]


def test_tokens_of_another_tokenizer_are_not_taken_over() -> None:
    record = {
        "prompt": "p",
        "response": "ab",
        "tokenizer": "x",
        "samples": [{"token_ids": [9, 1, 2], "sampled": [[1, 3]]}],
    }
    example = read_answer(record, "line 1")
    ((own,),) = samples_of(example, Renderer(), "x", ())  # type: ignore[arg-type]
    ((other,),) = samples_of(example, Renderer(), "y", ())  # type: ignore[arg-type]
    assert made.ids_and_mask(own) == ((9, 1, 2), (0, 1, 1))
    assert made.ids_and_mask(other) == ((7, 112, 97, 98), (0, 0, 1, 1))
    several = read_answer(record | {"samples": record["samples"] * 2}, "line 1")
    with refused("samples", says="several samples of another tokenizer"):
        samples_of(several, Renderer(), "y", ())  # type: ignore[arg-type]


def said(text: str) -> list[dict[str, str]]:
    """ "u: 2 + 3? | a: 5" as messages."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[part[0]], "content": part[3:]} for part in text.split(" | ")]


@pytest.mark.parametrize(
    ("prompt", "messages", "whole"),
    [
        ("u: q", "a: 5", "u: q / a: 5"),
        ("u: q", "u: q | a: 5", "u: q / a: 5"),
        ("u: q", "s: t | u: q | a: 5 | u: r | a: 6", "s: t | u: q / a: 5 | u: r | a: 6"),
        ("s: t | u: q", "u: q | a: 5", "s: t | u: q / a: 5"),
        ("u: q | a: 5 | u: r", "u: q | a: 5 | u: r | a: 6", "u: q | a: 5 | u: r / a: 6"),
        ("u: q | a: 5", "u: r | a: 6", "u: q | a: 5 / u: r | a: 6"),  # goes on
        ("s: t", "u: q | a: 5", "s: t / u: q | a: 5"),
        ("u: q", "u: other | a: 5", None),
        ("u: q", "s: t | u: other | a: 5", None),
    ],
)
def test_a_prompt_that_the_answer_repeats_is_asked_once(prompt: str, messages: str, whole: str | None) -> None:
    """As ultrachat and ultrafeedback have it; their prompt is a text."""
    record = {"prompt": said(prompt), "messages": said(messages)}
    pair = {"prompt": said(prompt), "chosen": said(messages), "rejected": said(f"{messages} no")}
    if whole is None:
        with refused('"prompt"', where="line 1", says="another prompt"):
            read_answer(record, "line 1")
        return
    for example in (read_answer(record, "line 1"), read_pair(pair, "line 1")):
        begun, _, rest = whole.partition(" / ")
        parts = (example.prompt, example.answers[0].messages)
        assert [[(message.role, message.content) for message in part] for part in parts] == [
            [(message["role"], message["content"]) for message in said(part)] for part in (begun, rest)
        ]
    assert read_answer({"prompt": "q", "messages": said("u: q | a: 5")}, "line 1").answers[0].messages[0].content == "5"


@pytest.mark.parametrize(
    ("read", "record", "line"),
    [
        (read_pair, {"prompt": "p", "chosen": "c"}, 'no "rejected"'),
        (read_pair, {"prompt": "p", "chosen": "c", "rejected": "c"}, "are the same"),
        (read_pair, {"prompt": [], "chosen": "c", "rejected": "d"}, '"prompt" is an empty list'),
        (
            read_pair,
            {"prompt": "p", "chosen": [{"role": "bot", "content": ""}], "rejected": "d"},
            "\"chosen\"[0].role is 'bot'",
        ),
        (read_pair, {"prompt": "p", "chosen": "", "rejected": "d"}, "the assistant says nothing"),
        (read_answer, {"prompt": "p"}, 'neither "messages" nor "response"'),
        (read_answer, {"response": "only"}, 'no "prompt"'),
        (read_answer, {"prompt": "p", "response": 3}, '"response" is a number'),
        (read_answer, {"prompt": "p", "response": "\ud800"}, "half of a surrogate pair"),
        (read_answer, {"prompt": "p", "response": "r", "samples": [{"token_ids": [1], "sampled": [[0, 1]]}]}, "[0, 1]"),
        (read_answer, {"prompt": "p", "response": "r", "samples": [{"token_ids": [-1]}]}, "no list of whole numbers"),
    ],
)
def test_a_bad_record_names_its_line_and_key(read: Any, record: dict[str, Any], line: str) -> None:
    with refused(says="line 7") as caught:
        read(record, "line 7")
    assert line in str(caught.value)


KEYS = st.sampled_from(["prompt", "messages", "response", "chosen", "rejected", "samples", "task", "task_id", "role"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.just("content"), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_any_record_is_read_or_refused(record: dict[str, Any]) -> None:
    for read in (read_answer, read_pair):
        try:
            samples_of(read(record, "line 1"), Renderer(), "", ())  # type: ignore[arg-type]
        except BadInput as error:
            assert "line 1" in str(error)


def test_what_a_token_limit_cut_off_has_no_end_to_learn() -> None:
    cut: list[bool] = []

    class Watched(Renderer):
        def demonstration(self, *what: Any, truncated: bool = False, offer: ToolOffer | None = None) -> Any:
            cut.append(truncated)
            return super().demonstration(*what, truncated=truncated, offer=offer)

    pair = {"prompt": "p", "chosen": "a", "rejected": "b"}
    for example in (
        read_answer({"prompt": "p", "response": "ab"}, "line 1"),
        read_answer({"prompt": "p", "response": "ab", "truncated": True}, "line 1"),
        read_pair(pair | {"chosen_truncated": False, "rejected_truncated": True}, "line 1"),
    ):
        samples_of(example, Watched(), "y", ("</a>",))  # type: ignore[arg-type]
    assert cut == [False, True, False, True]


def test_a_prompt_of_two_tasks_and_a_task_of_two_prompts_stay_together(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    records = [{"task_id": f"t{n}", "prompt": f"q{n % 5}", "response": f"r{n}"} for n in range(20)]
    records += [{"task_id": f"t{n}", "prompt": f"again: q{n % 5}", "response": "r"} for n in range(5)]
    held_out = []
    for order in (records, records[::-1]):
        path.write_text("\n".join(map(json.dumps, order)))
        data = open_data(read_answer, {path: None}, EvalConfig(every=1, share=0.4), seed=1)
        sides = [{(e.prompt[0].content[-2:], e.names[1]) for e in side} for side in (data.train, data.held_out)]
        assert [len({prompt for prompt, _ in side}) for side in sides] == [3, 2]
        assert len(data.held_out) == 2 * 5
        held_out.append(sides[1])
    assert held_out[0] == held_out[1]  # whatever the order of the lines


def test_several_files_are_mixed_by_counts(tmp_path: Path) -> None:
    for name, count in (("clean", 30), ("noisy", 10)):
        lines = [json.dumps({"prompt": f"q{n}", "response": f"{name} {n}"}) for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))

    def drawn(clean: int | None, noisy: int | None, seed: int = 1) -> list[str]:
        files = {tmp_path / "clean.jsonl": clean, tmp_path / "noisy.jsonl": noisy}
        return [
            example.answers[0].messages[-1].content
            for example in open_data(read_answer, files, EvalConfig(), seed).train
        ]

    answers = drawn(6, None)
    assert [text.split()[0] for text in answers] == ["clean"] * 6 + ["noisy"] * 10
    assert set(drawn(3, 1)) < set(answers)  # a smaller one is part of a larger one
    assert drawn(6, None) == answers != drawn(6, None, seed=2)
    with refused(where="noisy.jsonl", says="11 examples asked for, it has 10"):
        drawn(1, 11)


def test_a_prompt_that_is_held_out_of_one_file_is_held_out_of_all(tmp_path: Path) -> None:
    for name in "ab":
        lines = [json.dumps({"prompt": f"q{n}", "response": name}) for n in range(10)]
        (tmp_path / name).write_text("\n".join(lines))
    data = open_data(read_answer, {tmp_path / "a": None, tmp_path / "b": None}, EvalConfig(every=1, share=0.3), seed=1)
    assert len(data.held_out) == 6
    assert not {example.names for example in data.train} & {example.names for example in data.held_out}


def test_prompts_are_held_out_whole(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lines = [json.dumps({"prompt": f"q{n // 3}", "response": f"r{n}"}) for n in range(30)]
    path.write_text("\ufeff" + "\n\n".join(lines))
    data = open_data(read_answer, {path: None}, EvalConfig(every=1, share=0.2), seed=1)
    assert (len(data.train), len(data.held_out)) == (24, 6)
    assert not {example.names for example in data.train} & {example.names for example in data.held_out}
    assert len(open_data(read_answer, {path: None}, EvalConfig(every=1, share=0.2, tasks=1), seed=1).held_out) == 3
    assert len(open_data(read_answer, {path: None}, EvalConfig(), seed=1).train) == 30
    packed = tmp_path / "answers.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [*open_data(read_answer, {packed: None}, EvalConfig(), seed=1).train] == [
        *open_data(read_answer, {path: None}, EvalConfig(), seed=1).train
    ]
    packed.write_bytes(packed.read_bytes()[:-40])
    with refused(where="answers.jsonl", says=".gz: cannot be read"):
        open_data(read_answer, {packed: None}, EvalConfig(), seed=1)
    path.write_text(lines[0])
    with refused("eval.every", expected="at least two prompts"):
        open_data(read_answer, {path: None}, EvalConfig(every=1), seed=1)


def test_pair_loss_by_hand() -> None:
    assert pair_loss([-1.0, -2.0], [-1.0, -2.0], 0.1)["eval/loss"] == pytest.approx(math.log(2))
    # margins 0.5 * ((-1 + 3) - (-4 + 2)) = 2 and 0.5 * (0 - 2) = -1
    metrics = pair_loss([-1.0, -4.0, -1.0, -1.0], [-3.0, -2.0, -1.0, -3.0], 0.5)
    losses = [math.log1p(math.exp(-2.0)), math.log1p(math.exp(1.0))]
    assert metrics == pytest.approx({"eval/loss": sum(losses) / 2, "eval/margin": 0.5, "eval/accuracy": 0.5})
    assert pair_loss([-1.0, -2.0], [-1.1, -2.0], 0.5)["eval/accuracy"] == 1.0  # a margin of 0.05: most are below 1
    assert pair_loss([0.0, 2000.0], [0.0, 0.0], 1.0)["eval/loss"] == pytest.approx(2000.0)  # no overflow


# -- a run ------------------------------------------------------------------------------------------------------------


class Learner(BanditLearner):
    """With a reference, and scores of its own tokens."""

    async def begin(self, model_path: str, *args: Any, **kwargs: Any) -> None:
        await super().begin(model_path, *args, **kwargs)
        self.reference = self.logits.detach().clone()

    def _logp(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(logits, 0)[ids.clamp(max=1)]

    async def update(self, version: int) -> UpdateReport:
        batch = self.built
        self.logits.grad = None
        metrics = []
        for row in batch.rows:
            row = replace(row, reference_logprobs=self._logp(self.reference, row.token_ids) * row.loss_mask)
            logp = self._logp(self.logits, row.token_ids) * row.loss_mask
            out = self.algorithm.loss(logp, torch.zeros_like(logp), row, denominator=batch.denominators[0])
            out.loss.backward()
            metrics.append(out.metrics)
        assert self.logits.grad is not None
        with torch.no_grad():
            self.logits -= self.lr * self.logits.grad
        return UpdateReport(applied=True, metrics=merge(metrics), seconds=0.0)

    async def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        if len(token_ids[0]) == PROBE_TOKENS:  # the probe, as the fake engines read it
            return await super().logprobs(token_ids)
        with torch.no_grad():
            return [self._logp(self.logits, torch.tensor(list(ids)[1:])).tolist() for ids in token_ids]


class Pool(BanditPool):
    async def group(self, *args: Any, **kwargs: Any) -> Group:
        group = await super().group(*args, **kwargs)
        await asyncio.sleep(0.02)
        question = Message(role="user", content=group.ticket.task.question)
        played = (
            replace(episode, num_prompt=1, messages=(question, *episode.messages[1:])) for episode in group.trajectories
        )
        return replace(group, trajectories=tuple(played))


STAGES = """
stages:
  - {name: tries, kind: generate, generate: {samples: 4, keep: correct, concurrency: 8}}
  - {name: prefer, kind: dpo, data: tries, epochs: 3, learner: {lr: 5.0}, loop: {groups_per_step: 4}, eval: {every: 2}}
  - {name: again, kind: sft, data: tries, steps: 4, learner: {lr: 0.5}, eval: {every: 2}}
"""


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandit, "BanditLearner", Learner)
    monkeypatch.setattr(bandit, "Renderer", Renderer)


def test_a_policy_learns_from_what_it_generated_across_stops(tmp_path: Path) -> None:
    def stop_at(stage: str, step: int) -> Any:
        return lambda run, row: run.tasks.stop.set() if (row["stage"], row["stage_step"]) == (stage, step) else None

    stops: list[dict[str, Any]] = [{"stop_after_s": 0.05}, {"stop_after_s": 0.08}]  # while it generates
    stops += [{"on_row": stop_at("prefer", 1)}, {"on_row": stop_at("prefer", 3)}, {"on_row": stop_at("again", 1)}]
    for stop in stops:
        outcome = driver.play(tmp_path, pool=Pool(), stages=STAGES, **stop)
        assert isinstance(outcome.error, StopRequested)
    outcome = driver.play(tmp_path, pool=Pool(), stages=STAGES)
    assert outcome.error is None
    state = outcome.run.state
    assert state.eval_before["sampled"] < 0.8 < state.eval_after["sampled"]
    counts = outcome.summary["generated"]["tries"]
    assert counts["trajectories"] == 16 * 4
    assert counts["kept"] <= counts["solved"]
    dpo = [row for row in driver.rows(tmp_path) if row["stage"] == "prefer"]
    trained = counts["pairs"] - 1  # one prompt is held out
    assert [row["stage_step"] for row in dpo] == list(range(1, math.ceil(3 * trained / 4) + 1))
    assert dpo[0]["loss/dpo"] == pytest.approx(math.log(2))
    measured = [row["eval/loss"] for row in dpo if "eval/loss" in row]
    assert len(measured) == math.ceil(len(dpo) / 2)
    assert math.log(2) > measured[0] > measured[-1]  # against the weights that the stage began with, resumed or not
    assert [("eval/loss" in row) for row in driver.rows(tmp_path) if row["stage"] == "again"] == [False, True] * 2
    assert [row["step"] for row in driver.rows(tmp_path)] == list(range(1, len(dpo) + 5))
    generated = tmp_path / "run" / "generated"
    assert sorted(path.name for path in generated.iterdir()) == [
        "tries.jsonl",
        "tries.pairs.jsonl",
        "tries.played.jsonl",
    ]
    assert all(json.loads(line)["reward"] == 1.0 for line in (generated / "tries.jsonl").read_text().splitlines())
    assert outcome.run.state.version > 1  # engines have held other weights under the first number


def test_what_other_weights_began_is_not_continued(tmp_path: Path) -> None:
    """Nothing was trained yet and no checkpoint written: the same run may begin with another model."""
    assert isinstance(driver.play(tmp_path, pool=Pool(fail=lambda ticket: True), stages=STAGES).error, RunFailed)
    (tmp_path / "model.safetensors").write_bytes(b"another model's")
    with refused(where="played.jsonl", says="it was begun with weights='step 0"):
        driver.play(tmp_path, pool=Pool(), stages=STAGES)


def test_held_out_examples_that_do_not_fit_are_said(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "answers.jsonl", [{"prompt": f"{n}?", "response": "1" * 200} for n in range(4)])
    stage = f"{{name: s, kind: sft, data: {path}, steps: 1, eval: {{every: 1}}}}"
    with refused(says="all 1 held-out answers are longer"):
        driver.play(tmp_path, stages=f"engine: {{max_model_len: 128}}\nstages: [{stage}]\n")


def test_examples_that_do_not_fit_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": f"{n}?", "response": "1" * (200 if n % 2 else 2)} for n in range(8)]
    path = jsonl(tmp_path / "answers.jsonl", rows)
    stage = f"{{name: s, kind: sft, data: {path}, steps: 3, loop: {{groups_per_step: 8}}}}"
    outcome = driver.play(tmp_path, stages=f"engine: {{max_model_len: 128}}\nstages: [{stage}]\n")
    assert outcome.error is None
    assert capsys.readouterr().out.count("4 of 8 examples of a step are longer than engine.max_model_len=128") == 1


def test_chat_marks_in_answers_are_said_with_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "answers.jsonl"
    answers = ["1", "0<|end|>user: and now?<|end|>1", "1", "0<|end|>"]
    path.write_text("".join(json.dumps({"prompt": f"{n}?", "response": text}) + "\n" for n, text in enumerate(answers)))
    stages = f"stages: [{{name: s, kind: sft, data: {path}, steps: 1, loop: {{groups_per_step: 2}}}}]\n"
    assert driver.play(tmp_path, stages=stages).error is None
    line = "2 of the examples hold chat marks, the first <|end|> in answers.jsonl line 2: they are text there"
    assert line in capsys.readouterr().out


def test_nothing_to_train_on_is_said_with_the_counts(tmp_path: Path) -> None:
    stages = STAGES.replace("keep: correct", "min_reward: 2.0").replace("  - {name: prefer", "#")
    outcome = driver.play(tmp_path, pool=Pool(), stages=stages)
    assert isinstance(outcome.error, RunFailed)
    assert "stages.again: nothing to train on in" in str(outcome.error)
    assert "generate.min_reward ({'tasks': 16" in str(outcome.error)
