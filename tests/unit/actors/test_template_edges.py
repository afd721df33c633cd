"""What chat templates write around a message, and what they leave out: it is learned as it stands, or refused."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import Unigram
from tokenizers.normalizers import Prepend, Replace, Sequence
from transformers import PreTrainedTokenizerFast

from actors.chat import PROBE, PROBE_OFFER
from actors.renderer import ChatRenderer
from rlsys.types import Message, TurnStop
from tests.makers import made
from tests.makers.played import tokenizer_in
from tests.refused import refused

LLAMA2 = """\
{{- bos_token -}}{%- for m in messages -%}
{{- '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else ' ' + m.content + ' ' + eos_token -}}
{%- endfor -%}"""
VICUNA = """\
{%- for m in messages -%}
{{- 'USER: ' + m.content + ' ' if m.role == 'user' else 'ASSISTANT: ' + m.content + eos_token -}}
{%- endfor -%}{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%}"""
CHAT = """\
{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"""
LINE = CHAT.replace("m.content + '", "m.content + '\\n")
CALLS = """\
{{- tools | tojson if tools else '' -}}{%- for m in messages -%}
{%- if m.tool_calls -%}{{- '<|im_start|>assistant\n' -}}{%- for c in m.tool_calls -%}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' -}}
{{- c.function.arguments | tojson + '}\n</tool_call>' -}}
{%- endfor -%}{{- '<|im_end|>\n' -}}
{%- elif m.role in SHOWN -%}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"""

SYSTEM = Message(role="system", content="Be brief.")
ASKED, SAID = Message(role="user", content="Ann has 48 pens."), Message(role="assistant", content="48")
CALLED = Message(role="assistant", content="I look it up.", calls=(PROBE,))
RESULT = Message(role="tool", content="24.0", tool=PROBE.name, call_id=PROBE.call_id)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_in(tmp_path_factory.mktemp("tokenizer"), ["Ann has 48 pens.", "USER: ASSISTANT: [INST]"] * 20, ())


def rendering(folder: Path, template: str) -> ChatRenderer:
    return ChatRenderer(str(folder), template=template)


def parts(renderer: ChatRenderer, demonstration: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[str, str]:
    """(all of it, what is trained)"""
    ids, mask = demonstration
    trained = [token for token, of_model in zip(ids, mask, strict=True) if of_model]
    return renderer.decode(ids), renderer.decode(trained)


@pytest.mark.parametrize(
    ("template", "turn"), [(LLAMA2, " 48 {}"), (VICUNA, " 48{}"), (CHAT, "48{}"), (LINE, "48\n{}")]
)
def test_a_demonstration_is_what_the_template_shows(folder: Path, template: str, turn: str) -> None:
    renderer = rendering(folder, template)
    whole = [ASKED, SAID, ASKED, SAID]
    expected = renderer.tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in whole], tokenize=False
    )
    end = renderer.tokenizer.eos_token
    text, trained = parts(renderer, renderer.demonstration(whole, 1, ()))
    assert text == expected.removesuffix("\n")
    assert trained == 2 * turn.format(end)


@pytest.mark.parametrize("template", [LLAMA2, VICUNA, CHAT, LINE])
def test_a_rollout_of_it_has_the_same_tokens(folder: Path, template: str) -> None:
    renderer = rendering(folder, template)
    ids, mask = renderer.demonstration([ASKED, SAID, ASKED, SAID], 1, ())
    start = mask.index(1)
    sampled = ids[start : start + mask[start:].index(0)]
    assert sampled[-1] == renderer.turn_end
    completion = made.completion(sampled, renderer.decode(sampled[:-1]), stop=TurnStop.EOS)
    reply = Message(role="assistant", content=completion.text)
    after = renderer.extend(made.ints(renderer.prompt_ids([ASKED])), completion, [ASKED, reply], [ASKED])
    assert tuple(after.context_ids.tolist()) == ids[: len(after.context_ids)]
    assert mask[len(after.context_ids) :] and all(mask[len(after.context_ids) :])


def test_a_message_that_the_template_leaves_out_is_refused(folder: Path) -> None:
    without = rendering(folder, CALLS.replace("SHOWN", "('user', 'assistant')"))
    first = rendering(
        folder,
        CHAT.replace(
            "in messages", "in messages[:1] + (messages[1:] | rejectattr('role', 'equalto', 'system') | list)"
        ),
    )
    for renderer, prompt in ((without, [SYSTEM, ASKED]), (first, [ASKED, SYSTEM, ASKED])):
        for _ in range(2):  # the second is known by its roles
            with refused(says="leaves out a message of the system"):
                renderer.prompt_ids(prompt)
    assert without.prompt_ids([ASKED, SAID, ASKED]) and first.prompt_ids([ASKED])
    with refused(says="leaves out a message of the tool"):
        without.demonstration([ASKED, CALLED, RESULT, SAID], 1, (), offer=PROBE_OFFER)
    sampled = made.completion(without.encode("48"), "48")
    with refused(says="leaves out a message of the tool"):
        without.extend(made.ints((1,)), sampled, [ASKED, SAID], [RESULT], offer=PROBE_OFFER)


def test_what_is_said_beside_a_call_is_learned_also_where_the_template_hides_it(folder: Path) -> None:
    renderer = rendering(folder, CALLS.replace("SHOWN", "('user', 'assistant', 'tool')"))
    _, trained = parts(renderer, renderer.demonstration([ASKED, CALLED, RESULT, SAID], 1, (), offer=PROBE_OFFER))
    assert trained.startswith("I look it up.") and json.dumps(PROBE.arguments) in trained


def test_a_second_thought_is_refused(folder: Path) -> None:
    closed = CHAT.replace("assistant\n'", "assistant\n<think>\n\n</think>\n\n'")
    renderer = rendering(folder, closed)
    thought = Message(role="assistant", content="<think>\nhm\n</think>\n\n48")
    with refused(says="a thought behind"):
        renderer.demonstration([ASKED, thought], 1, ())
    assert parts(renderer, renderer.demonstration([ASKED, SAID], 1, ()))[1] == "48<|im_end|>"


@pytest.fixture(scope="module")
def spacing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer in Llama 2's manner, which puts a space before any text that it is given."""
    path = tmp_path_factory.mktemp("spacing")
    letters = "\u2581\n" + "".join(map(chr, range(33, 127)))
    own = Tokenizer(Unigram([("<unk>", 0.0), *((letter, -2.0) for letter in letters)], unk_id=0))
    own.normalizer = Sequence([Prepend("\u2581"), Replace(" ", "\u2581")])
    own.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    marks = ["<|im_start|>", "<|im_end|>"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=own, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.save_pretrained(path)
    (path / "config.json").write_text('{"model_type": "llama"}')
    return path


@pytest.mark.parametrize(("template", "said"), [(VICUNA, "\u258148"), (CHAT, "48"), (LLAMA2, "\u258148\u2581")])
def test_no_space_is_learned_that_a_tokenizer_puts_before_any_text(spacing: Path, template: str, said: str) -> None:
    renderer = rendering(spacing, template)
    ids, mask = renderer.demonstration([ASKED, SAID, ASKED, SAID], 1, ())
    pieces = renderer.tokenizer.convert_ids_to_tokens(list(ids))
    trained = [piece for piece, of_model in zip(pieces, mask, strict=True) if of_model]
    assert "".join(trained[: len(trained) // 2 - 1]) == "".join(trained[len(trained) // 2 : -1]) == said
    expected = renderer.tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in (ASKED, SAID)], tokenize=False
    )
    whole = renderer.tokenizer.convert_ids_to_tokens(list(renderer.encode(expected)))
    assert "".join(whole).startswith("".join(pieces[: mask.index(0, mask.index(1)) - 1]))


def test_a_reply_within_the_turn_has_no_space_of_its_own(spacing: Path) -> None:
    renderer = rendering(spacing, CHAT)
    reply = Message(role="tool", content="24.0", inline=True)
    sampled = made.completion(renderer.encode("48")[1:], "48")
    after = renderer.extend(made.ints((1,)), sampled, [ASKED, SAID], [reply])
    pieces = renderer.tokenizer.convert_ids_to_tokens(after.context_ids.tolist())
    assert "".join(pieces).endswith("4824.0")
    ids, _ = renderer.demonstration([ASKED, SAID, reply, SAID], 1, ())
    assert "".join(renderer.tokenizer.convert_ids_to_tokens(list(ids))).endswith("\n4824.048</s>")
