"""A taught answer ends as the model's own chat template ends a turn, where that is one of its end tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import transformers.utils
from tokenizers import AddedToken

from actors.end_tokens import read_ends
from actors.renderer import ChatRenderer
from launch.checks.prompts import doubts
from learners.scratch import train_tokenizer
from rlsys.types import Message, TurnStop
from tests.makers import made
from tests.refused import refused

QUESTION = Message(role="user", content="Ann has 48 pens.")
ANSWER = Message(role="assistant", content="48")
REPLY = Message(role="user", content="24.0")

# Of each family the end of a text, the marks, and a template with what it writes around a message.
GEMMA = (
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
GLM = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
FAMILIES = {
    "gemma": ("<eos>", ["<start_of_turn>", "<end_of_turn>"], GEMMA, "<end_of_turn>"),
    "phi3": ("<|endoftext|>", ["<|user|>", "<|assistant|>", "<|end|>"], PHI, "<|end|>"),
    "glm4": ("<|endoftext|>", ["<|user|>", "<|assistant|>", "<|observation|>"], GLM, "<|user|>"),
}


def model(folder: Path, family: str, *, named: bool = True) -> ChatRenderer:
    """named: whether generation_config.json names the end of a turn, as those of the real models do."""
    eos, marks, template, end = FAMILIES[family]
    tokenizer = train_tokenizer(["Ann has 48 pens.", "user model assistant"] * 9, (), vocab_size=400, max_positions=512)
    special = [AddedToken(mark, special=True, normalized=False) for mark in (eos, *marks)]
    tokenizer.add_tokens(special, special_tokens=True)
    tokenizer.eos_token, tokenizer.chat_template = eos, template
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "eos_token_id": tokenizer.eos_token_id}))
    ends = [tokenizer.eos_token_id, *([tokenizer.convert_tokens_to_ids(end)] if named else [])]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return ChatRenderer(str(folder))


def trained(renderer: ChatRenderer, *messages: Message) -> str:
    ids, mask = renderer.demonstration([QUESTION, *messages], 1, ())
    return renderer.decode([token for token, own in zip(ids, mask, strict=True) if own])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_demonstration_ends_as_the_template_ends_a_turn(family: str, tmp_path: Path) -> None:
    renderer, end = model(tmp_path, family), FAMILIES[family][3]
    assert trained(renderer, ANSWER) == f"48{end}"
    assert trained(renderer, ANSWER, REPLY, ANSWER) == f"48{end}48{end}"
    assert doubts(renderer, str(tmp_path)) == []
    ids, _ = renderer.demonstration([QUESTION, ANSWER, REPLY, ANSWER], 1, ())
    sampled = made.completion((*renderer.encode(f"48{end}"),), "48", stop=TurnStop.EOS)
    context = made.ints(renderer.prompt_ids([QUESTION]))
    after = renderer.extend(context, sampled, [QUESTION, ANSWER], [REPLY]).context_ids
    assert ids == (*after.tolist(), *renderer.encode(f"48{end}"))  # token for token what a rollout of it gives


@pytest.mark.parametrize("family", FAMILIES)
def test_an_end_of_turn_that_ends_no_message_of_this_model_is_not_taught(family: str, tmp_path: Path) -> None:
    renderer, eos = model(tmp_path, family, named=False), FAMILIES[family][0]
    assert trained(renderer, ANSWER) == f"48{eos}"
    assert "never ends a message" in doubts(renderer, str(tmp_path))[0]


def changed(folder: Path, template: str) -> ChatRenderer:
    model(folder, "phi3")
    (folder / "chat_template.jinja").write_text(template)
    return ChatRenderer(str(folder))


@pytest.mark.parametrize("said", ["<think>\none more\n</think>\n\n48", "<think>one more</think>48"])
def test_a_thought_that_the_template_opens_is_opened_once_in_each_turn(said: str, tmp_path: Path) -> None:
    renderer = changed(tmp_path, PHI.replace("<|assistant|>\n{% endif", "<|assistant|>\n<think>\n{% endif"))
    answer = Message(role="assistant", content=said)
    ids, _ = renderer.demonstration([QUESTION, answer, REPLY, answer], 1, ())
    assert renderer.decode(ids).count("<think>") == 2 == renderer.decode(ids).count("</think>")
    taught = said.removeprefix("<think>").removeprefix("\n")
    assert trained(renderer, answer, REPLY, answer) == f"{taught}<|end|>{taught}<|end|>"
    for turns in ([ANSWER], [answer, REPLY, ANSWER]):  # within the thought
        with refused(says="no end of the thought"):
            trained(renderer, *turns)
    (doubt,) = doubts(renderer, str(tmp_path))
    assert "opens a thought itself" in doubt
    inside = Message(role="user", content=" and ", inline=True)  # the same turn goes on: its tags are the model's own
    assert trained(renderer, ANSWER, inside, answer) == f"48{said}<|end|>"


def test_a_template_that_opens_no_turn_is_doubted(tmp_path: Path) -> None:
    (doubt,) = doubts(changed(tmp_path, PHI.partition("{% if")[0]), str(tmp_path))
    assert "no generation prompt" in doubt
    shut = changed(tmp_path, PHI.replace("<|assistant|>\n{% endif", "<|assistant|>\n<think>\n\n</think>\n\n{% endif"))
    (doubt,) = doubts(shut, str(tmp_path))  # no thought is left open; the history shows none at all
    assert "rewrites earlier turns" in doubt and trained(shut, ANSWER) == "48<|end|>"


def test_a_text_that_knows_no_turns_ends_with_the_tokenizers_end(tmp_path: Path) -> None:
    renderer = model(tmp_path, "gemma")
    ids, _ = renderer.demonstration([replace(QUESTION, inline=True), ANSWER], 1, ())
    assert renderer.decode(ids[-1:]) == "<eos>"


def test_the_ends_of_a_hub_name_are_read_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = model(tmp_path, "gemma").ends
    lookups = []

    def cached_file(name: str, file: str, **_: object) -> str:
        lookups.append((name, file))
        return str(tmp_path / file)

    monkeypatch.setattr(transformers.utils, "cached_file", cached_file)
    assert read_ends("google/some", 7) == ends | {7} and len(ends) == 2
    assert lookups == [("google/some", "generation_config.json"), ("google/some", "config.json")]


def test_a_file_that_is_no_json_is_bad_input(tmp_path: Path) -> None:
    model(tmp_path, "gemma")
    (tmp_path / "generation_config.json").write_text("{")
    with refused("model.path", found=str(tmp_path), says="generation_config.json"):
        ChatRenderer(str(tmp_path))


def test_ends_are_whole_numbers_also_of_a_model_of_more_than_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": [5, 6]}}))
    assert read_ends(str(tmp_path), 2) == {2, 5, 6}
    for wrong in ([5.0], ["<eos>"], True, "5"):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": wrong}))
        with refused('"eos_token_id"', where="generation_config.json"):
            read_ends(str(tmp_path), 2)
