"""Arguments of a chat template: what it reads reaches it, and nothing else is taken."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from actors.renderer import ChatRenderer
from actors.template_args import names_read
from launch.driver.stages.trajectories import tokenizer_id
from rlsys.errors import BadInput
from rlsys.types import Message
from tests.makers.played import tokenizer_in

# In Qwen3's manner: without thinking every turn opens with an empty thought.
TEMPLATE = """\
{%- set today = today if today is defined else 'now' -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' -}}{% generation %}{{- m.content -}}{% endgeneration %}{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}"""
ASKED = [Message(role="user", content="4 + 4?")]
OFF = {"enable_thinking": False}


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    folder = tokenizer_in(tmp_path_factory.mktemp("tokenizer"), ["4 + 4 is 8."] * 20, ())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return ChatRenderer(str(folder))


def test_what_the_template_reads_reaches_every_prompt_and_demonstration(renderer: ChatRenderer) -> None:
    quiet = renderer.under(OFF)
    prompt = quiet.tokenizer.apply_chat_template(
        [{"role": "user", "content": "4 + 4?"}], tokenize=False, add_generation_prompt=True, **OFF
    )
    assert quiet.decode(quiet.prompt_ids(ASKED)) == prompt and prompt.endswith("</think>\n\n")
    ids, mask = quiet.demonstration([*ASKED, Message(role="assistant", content="8")], 1, ())
    trained = [token for token, of_model in zip(ids, mask, strict=True) if of_model]
    assert quiet.decode(ids) == f"{prompt}8<|im_end|>" and quiet.decode(trained) == "8<|im_end|>"
    assert quiet.chat.rewrites == ("turns",) and renderer.chat.rewrites == ()  # the empty thought stands in no history


def test_a_renderer_is_made_once_for_each_set_of_arguments(renderer: ChatRenderer) -> None:
    assert renderer.under({}) is renderer and renderer.under(OFF) is renderer.under(dict(OFF))
    assert renderer.under({"enable_thinking": True}).prompt_ids(ASKED) == renderer.prompt_ids(ASKED)
    assert tokenizer_id(renderer) != tokenizer_id(renderer.under(OFF))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"enable_thinkng": False}, "env.template_args.enable_thinkng=False.*never reads.*'enable_thinking'"),
        ({"enable_thinking": False, "reasoning_effort": "low"}, "reasoning_effort='low'.*never reads"),
        ({"messages": []}, "env.template_args.messages.*sets it"),
        ({"tools": []}, "tools.*sets it"),
        ({"add_generation_prompt": False}, "add_generation_prompt.*sets it"),
        ({"chat_template": "x"}, "chat_template.*sets it"),
        ({"tokenize": True}, "tokenize.*sets it"),
        ({"eos_token": "x"}, "eos_token.*sets it"),
    ],
)
def test_an_argument_without_effect_and_one_that_is_set_already_are_refused(
    renderer: ChatRenderer, args: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        renderer.under(args)


def test_a_template_that_needs_an_argument_is_used_with_it(renderer: ChatRenderer) -> None:
    needs = TEMPLATE + "{{ '' if persona.name else raise_exception('no persona') }}"
    bare = ChatRenderer(renderer.tokenizer.name_or_path, template=needs)
    with pytest.raises(BadInput, match=r"a conversation of user: .*'persona' is undefined"):
        bare.prompt_ids(ASKED)
    with pytest.raises(BadInput, match="its chat template cannot be used: .*'persona' is undefined"):
        _ = bare.chat.rewrites
    dressed = bare.under({"persona": {"name": "Ada"}})
    assert dressed.prompt_ids(ASKED) == renderer.prompt_ids(ASKED) and dressed.chat.rewrites == ()


def test_a_template_of_ones_own_stands_in_the_place_of_the_tokenizers(renderer: ChatRenderer) -> None:
    folder = Path(renderer.tokenizer.name_or_path)
    own = "{% for m in messages %}Q: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}A {{ mood }}{% endif %}"
    own_renderer = ChatRenderer(str(folder), template=own)
    assert own_renderer.decode(own_renderer.under({"mood": "calm"}).prompt_ids(ASKED)) == "Q: 4 + 4?\nA calm"


def test_names_that_a_template_sets_itself_are_not_read() -> None:
    text = "{% set a = b %}{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ a ~ m }}{% endfor %}"
    assert names_read(text) == {"b", "messages"}
    assert names_read({"default": text, "tool_use": "{{ c }}"}) == {"b", "c", "messages"}
