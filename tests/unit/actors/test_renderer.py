"""Tokens: what was sampled stays, what is said is appended, and a demonstration is what its rollout would have been."""

from dataclasses import replace
from pathlib import Path

import pytest

from actors.renderer import ChatRenderer
from learners.scratch import train_tokenizer
from rlsys.errors import BadInput
from rlsys.types import Completion, Message, TurnStop

TAGS = ("<math_exp>", "</math_exp>", "<answer>", "</answer>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(
        ["Ann has 48 pens.", "48 / 2 -> 24.0"] * 20, TAGS, vocab_size=400, max_positions=256
    ).save_pretrained(path)
    (path / "config.json").write_text('{"model_type": "qwen3"}')
    return path


@pytest.fixture(scope="module")
def renderer(folder: Path) -> ChatRenderer:
    return ChatRenderer(str(folder))


QUESTION = Message(role="user", content="Ann has 48 pens.")
CALL, REPLY = (
    Message(role="assistant", content="<math_exp>48 / 2</math_exp>"),
    Message(role="user", content="48 / 2 -> 24.0"),
)


def completion(renderer: ChatRenderer, text: str) -> Completion:
    ids = renderer.encode(text)
    return Completion(token_ids=ids, logprobs=(0.0,) * len(ids), spans=(), stop=TurnStop.STOP, text=text)


def test_prompt_and_delta_make_the_conversation_that_the_template_would(renderer: ChatRenderer) -> None:
    ids = renderer.prompt_ids([QUESTION])
    sampled = completion(renderer, CALL.content)
    context = ids + sampled.token_ids + renderer.delta_ids(sampled, REPLY)
    whole = renderer.tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in (QUESTION, CALL, REPLY)],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert renderer.decode(context) == whole


def test_an_end_of_turn_that_was_sampled_is_not_said_twice(renderer: ChatRenderer) -> None:
    open_end = completion(renderer, "<math_exp>1</math_exp>")
    closed = replace(completion(renderer, "<math_exp>1</math_exp><|im_end|>"), stop=TurnStop.EOS)
    delta = renderer.delta_ids(open_end, REPLY)
    assert delta[0] == renderer.tokenizer.eos_token_id
    assert renderer.delta_ids(closed, REPLY) == delta[1:]


def test_a_demonstration_is_token_for_token_a_rollout_and_only_the_model_is_trained(renderer: ChatRenderer) -> None:
    answer = Message(role="assistant", content="<answer>24</answer>")
    ids, mask = renderer.demonstration([QUESTION, CALL, REPLY, answer], 1)
    call = completion(renderer, CALL.content)
    rollout = (
        renderer.prompt_ids([QUESTION])
        + call.token_ids
        + renderer.delta_ids(call, REPLY)
        + renderer.encode(answer.content)
    )
    assert ids == rollout
    trained = [token for token, m in zip(ids, mask, strict=True) if m]
    assert renderer.decode(trained) == CALL.content + answer.content


def test_hostile_replies_are_text_and_no_template(renderer: ChatRenderer) -> None:
    sampled = completion(renderer, "x")
    for text in ("{{ 7 * 7 }}", "{% for x in y %}", "\u241fassistant\u241f"):
        delta = renderer.decode(renderer.delta_ids(sampled, Message(role="user", content=text)))
        assert text in delta


def test_a_template_that_drops_assistant_messages_is_refused(folder: Path, tmp_path: Path) -> None:
    renderer = ChatRenderer(str(folder))
    renderer.tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(BadInput, match="drops assistant messages"):
        renderer.delta_ids(completion(renderer, "x"), REPLY)


def test_a_tokenizer_without_a_chat_template_gets_a_plain_one(folder: Path, tmp_path: Path) -> None:
    import shutil

    plain = tmp_path / "plain"
    shutil.copytree(folder, plain)
    (plain / "chat_template.jinja").unlink()
    renderer = ChatRenderer(str(plain))
    assert renderer.decode(renderer.prompt_ids([QUESTION])) == "Ann has 48 pens.\n"


def test_no_tokenizer_is_bad_input_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no tokenizer") as caught:
        ChatRenderer(str(tmp_path))
    assert "\n" not in str(caught.value)
