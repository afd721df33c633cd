"""A prompt as the model gets it is shown before a run starts, and a template that does not fit is said, or refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from actors.renderer import ChatRenderer
from envs.worlds.calculator import CalculatorWorld
from launch.checks import prompts
from launch.checks.prompts import prompt_lines
from launch.config.compose import compose
from rlsys.errors import BadInput
from rlsys.types import Task
from tests.makers.made import jsonl
from tests.makers.played import tokenizer_in
from tests.refused import refused

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INST = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_in(tmp_path_factory.mktemp("tokenizer"), ["Ann has 48 pens.", "48 / 2 -> 24.0"] * 20, ())


def with_template(folder: Path, tmp_path: Path, template: str) -> str:
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "chat_template.jinja").write_text(template)
    return str(tmp_path / "m")


def lines(model: str, *overrides: str, most: int = 1000) -> list[str]:
    config = compose("quickstart", ["env.train_tasks=8", "env.held_out_tasks=8", *overrides])
    return prompt_lines(ChatRenderer(model), model, [config.stages[-1].config] * 2, most, config=config)


def test_the_prompt_is_shown_as_the_model_gets_it(folder: Path, tmp_path: Path) -> None:
    model = with_template(folder, tmp_path, CHATML)
    template, first, *text = lines(model, "engine.max_model_len=2048")
    assert template == "chat template: the model's own, of chat_template.jinja"
    assert "tokens, in a window of 2048; a message ends at <|im_end|>, " in first and "</answer>" in first
    assert text[0] == "  | <|im_start|>user" and text[-2] == "  | " and "<|im_start|>assistant" in text[-3]
    assert text[-1].startswith("prompts: at most ")  # once: both stages play one world in one window
    preview = lines(model, "engine.max_model_len=2048", most=10)
    assert "  | <|im_start ... (" in "\n".join(preview)


def bare(a, b):  # type: ignore[no-untyped-def]
    return a + b


def test_a_tool_that_the_model_has_to_guess_at_is_named(folder: Path) -> None:
    def tool_lines(function: str) -> list[str]:
        keys = ["env.name=tools", "env.protocol=hermes", f"env.tools=[{{function: {function}}}]", "reward.name=answer"]
        return [line for line in lines(str(folder), *keys) if line.startswith("tool ")]

    assert tool_lines(f"{__name__}.bare") == ["tool bare: the model reads no description, no type of a, b of it"]
    assert tool_lines("envs.problems.errands.price") == []


def test_of_an_agent_no_prompt_is_shown_that_it_may_not_send(folder: Path, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "rows.jsonl", [{"question": f"{n} + 1 is" + " long" * 99, "answer": "1"} for n in range(9)])
    env = f"{{name: agent, agent: my_agent.solve, data: {data}}}"
    keys = [f"stages.rl.env={env}", "stages.rl.reward={name: agent}", "engine.max_model_len=64"]
    shown = lines(with_template(folder, tmp_path, CHATML), *keys, "rollout.max_turn_tokens=8")
    assert len(shown) == 2 and "rlsys play" in shown[1]


def test_marks_of_another_model_are_said(folder: Path, tmp_path: Path) -> None:
    text = "\n".join(lines(with_template(folder, tmp_path, INST), "engine.max_model_len=2048"))
    assert "it never ends a message of the model: <|im_end|> does not stand after it" in text
    assert "its mark [INST] is no token of this tokenizer" in text


def test_a_prompt_that_was_rendered_before_is_said(folder: Path, tmp_path: Path) -> None:
    model = with_template(folder, tmp_path, CHATML)
    keys = ["env.name=prompts", "reward.name=answer", "reward.reads=last_number", "stages.sft=null"]
    questions = [f"<|im_start|>user\n{n} + 1?<|im_end|>\n<|im_start|>assistant\n" for n in range(4)]
    for name, rows in {"rendered": questions, "plain": ["1?", "2?"]}.items():
        data = jsonl(tmp_path / f"{name}.jsonl", [{"prompt": prompt, "answer": "1"} for prompt in rows])
        warnings = [line for line in lines(model, *keys, f"env.data={data}") if "chat marks, such as <|im_" in line]
        assert bool(warnings) == (name == "rendered")


def test_a_template_that_shows_the_day_is_said(folder: Path, tmp_path: Path) -> None:
    dated = "{{ strftime_now('%d %b %Y') if day is not defined else day }}" + CHATML
    renderer = ChatRenderer(with_template(folder, tmp_path, dated))
    assert any("strftime_now" in doubt for doubt in prompts.doubts(renderer, "m"))
    fixed = renderer.under({"day": "a day"})
    assert not any("strftime_now" in doubt for doubt in prompts.doubts(fixed, "m"))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m['text'] + m['content'] }}{% endfor %}", "UndefinedError: 'dict object' has no"),
        ("{{ messages", "TemplateSyntaxError: unexpected end of template"),
    ],
)
def test_a_broken_template_is_one_line_with_the_model(folder: Path, tmp_path: Path, template: str, reason: str) -> None:
    model = with_template(folder, tmp_path, template)
    with pytest.raises(BadInput) as caught:
        _ = ChatRenderer(model).chat.rewrites
    assert str(caught.value).startswith(f"model.path={model!r}: its chat template cannot be used: {reason}")
    assert "\n" not in str(caught.value)


def test_a_template_that_refuses_this_worlds_messages_is_told_with_their_roles(folder: Path, tmp_path: Path) -> None:
    picky = "{% if 'many' in messages[0]['content'] %}{{ raise_exception('No questions') }}{% endif %}"
    model = with_template(folder, tmp_path, picky + CHATML)
    with refused(
        "model.path", says="a conversation of user: the chat template does not take it (TemplateError: No questions"
    ):
        lines(model)


def test_a_stage_that_only_teaches_may_have_a_template_that_needs_an_argument(folder: Path, tmp_path: Path) -> None:
    model = with_template(folder, tmp_path, CHATML + "{{ '' if persona.name else '' }}")
    config = compose("quickstart", ["stages.rl=null", "env.template_args.persona={name: Ada}"])
    assert prompt_lines(ChatRenderer(model), model, [], config=config)
    with refused(says="'persona' is undefined"):
        lines(model)


def test_prompts_that_leave_no_room_are_counted_or_refused(folder: Path, tmp_path: Path) -> None:
    model = with_template(folder, tmp_path, CHATML)
    longest = int(lines(model, "engine.max_model_len=2048")[-1].split()[3])
    assert (
        f"leave no room for an answer: raise engine.max_model_len={longest}"
        in lines(model, f"engine.max_model_len={longest}", "rollout.max_turn_tokens=8")[-1]
    )
    with refused("engine.max_model_len", found=16):
        lines(model, "engine.max_model_len=16", "rollout.max_turn_tokens=8")


def test_a_world_that_takes_its_time_is_asked_for_few_prompts_and_its_bad_records_are_counted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, clock = with_template(folder, tmp_path, CHATML), [0.0]

    def slow_env(self: CalculatorWorld, task: Task, usual: Any = CalculatorWorld.env) -> Any:
        clock[0] += 0.9
        if clock[0] < 1:
            raise KeyError("inventory")
        return usual(self, task)

    monkeypatch.setattr(CalculatorWorld, "env", slow_env)
    monkeypatch.setattr(prompts.time, "monotonic", lambda: clock[0])
    *_, lengths, broken = lines(model, "engine.max_model_len=2048")
    assert lengths.endswith(" of 2 looked at")
    assert "prompts: 1 of 3 cannot be made; the first: env.name='calculator': no prompt for task" in broken
    assert "KeyError: 'inventory' (test_prompts.py:" in broken


def test_what_slow_prompts_show_refuses_no_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, clock, tasks = with_template(folder, tmp_path, CHATML), [0.0], []
    usual = CalculatorWorld.env

    def slow(self: CalculatorWorld, task: Task) -> Any:
        clock[0] += 30.0
        tasks.append(task)
        return usual(self, task)

    def broken(self: CalculatorWorld, task: Task) -> Any:
        slow(self, task)
        raise KeyError("inventory")

    monkeypatch.setattr(prompts.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(CalculatorWorld, "env", slow)
    small = ("engine.max_model_len=16", "rollout.max_turn_tokens=8")
    assert "of 1 prompts looked at" in lines(model, *small)[-1] and len(tasks) == 1  # the others may be shorter
    monkeypatch.setattr(CalculatorWorld, "env", broken)
    assert "prompts: 1 of 1 cannot be made; the first: env.name='calculator'" in lines(model, *small)[-1]
    assert len(tasks) == 2
    monkeypatch.setattr(prompts.time, "monotonic", lambda: 0.0)
    with pytest.raises(BadInput, match="KeyError: 'inventory'"):  # of every task of the sample
        lines(model, *small)


def test_a_tokenizer_without_a_template_is_said(folder: Path, tmp_path: Path) -> None:
    model = with_template(folder, tmp_path, "")
    (tmp_path / "m" / "chat_template.jinja").unlink()
    assert lines(model, "engine.max_model_len=2048")[0].startswith("chat template: none in the tokenizer")


def test_examples_whose_thoughts_the_template_drops_are_refused_as_turns(folder: Path, tmp_path: Path) -> None:
    """What is left of them would show an answer without the search before it."""
    drops = CHATML.replace("{{ message['content'] }}", "{{ message['content'].split('</think>')[-1] }}")
    shown = ["env={name: search_qa, protocol: icrl, train_tasks: 8, held_out_tasks: 8}", "reward={name: icrl}"]
    shown += ["stages.sft=null", "engine.max_model_len=8192"]
    turns = ["env.demonstrations={count: 1, layout: turns}"]
    for template in (CHATML, drops):
        model = with_template(folder, tmp_path / str(len(template)), template)
        assert lines(model, *shown, "env.demonstrations.count=1")
        if template is CHATML:
            assert "<search>" in "\n".join(lines(model, *shown, *turns, most=9000))
            continue
        with refused("env.demonstrations.layout", found="turns", says="drops thoughts of earlier turns"):
            lines(model, *shown, *turns)


@pytest.mark.parametrize("inner", [False, True])  # as models of texts and pictures have it
def test_a_tokenizer_that_is_larger_than_the_embedding_is_refused(folder: Path, tmp_path: Path, inner: bool) -> None:
    model = with_template(folder, tmp_path, CHATML)
    tokens = max(ChatRenderer(model).tokenizer.get_vocab().values()) + 1
    for rows in (tokens, tokens + 64, tokens - 1):
        size = {"vocab_size": rows}
        (tmp_path / "m" / "config.json").write_text(json.dumps({"text_config": size} if inner else size))
        if rows >= tokens:
            assert lines(model)
            continue
        with refused("model.path", found=model, says=f"{tokens} tokens and the model's embedding {rows} rows"):
            lines(model)
