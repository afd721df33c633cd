"""A real pretrained policy, SmolLM2-135M-Instruct: its tokenizer, its tied head and its chat template in every part.

Slow: the model is fetched and unpacked once (tests/smollm2.py), and each run of it takes a minute or two on two cores.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch

from actors.renderer import ChatRenderer
from envs.tools.offered import ToolEntry
from envs.worlds.tools import ToolsConfig, ToolsWorld
from learners.policy import load_policy
from learners.rows import pack_ids
from rlsys.errors import BadInput
from rlsys.samples import sample_trajectory
from rlsys.types import Completion, EpisodeEnd, Message, Trajectory, TurnStop, VersionSpan
from tests import smollm2, smollm2_cells
from tests.e2e.runs import rlsys
from tests.makers import made
from tests.makers.made import records
from tests.makers.played import episode

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ASKED = Message(role="user", content="What is the capital of France?")
CLOSE = 1e-3  # nats a token, in float32


@pytest.fixture(scope="module")
def model() -> str:
    try:
        return str(smollm2.fetch())
    except BadInput as error:
        pytest.skip(f"SmolLM2 cannot be fetched: {error}")


def test_its_template_renders_a_conversation_once_and_extends_it_token_by_token(model: str) -> None:
    renderer = ChatRenderer(model)
    prompt = np.asarray(renderer.prompt_ids([ASKED]), np.int32)
    text = renderer.tokenizer.decode(prompt)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith(f"<|im_start|>user\n{ASKED.content}<|im_end|>\n<|im_start|>assistant\n")
    token_ids = [*renderer.text_ids("Paris, 1 + 1 = 2."), renderer.tokenizer.eos_token_id]
    completion = Completion(
        token_ids=token_ids, logprobs=[-1.0] * len(token_ids), text="Paris, 1 + 1 = 2.", stop=TurnStop.EOS,
        spans=(VersionSpan(version=1, start=0, end=len(token_ids)),),
    )  # fmt: skip
    reply = Message(role="user", content="And of Italy?")
    spoken = [ASKED, Message(role="assistant", content=completion.text)]
    continued = renderer.extend(prompt, completion, spoken, (reply,))
    assert list(continued.context_ids[: len(prompt) + len(token_ids)]) == [*prompt.tolist(), *token_ids]
    conversation = renderer.tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in (*spoken, reply)],
        tokenize=False, add_generation_prompt=True,
    )  # fmt: skip
    assert renderer.tokenizer.decode(continued.context_ids) == conversation


def test_a_list_of_tools_in_its_own_words(model: str) -> None:
    """Its template shows no tools and writes no calls: native is refused before anything starts, and hermes plays."""
    result = rlsys("train", "worlds/tools", "--dry-run", f"model.path={model}")
    assert result.code == 2 and "Traceback" not in result.output, result.output
    last = result.output.strip().splitlines()[-1]
    assert "chat template" in last and "env.protocol=hermes" in last, result.output

    renderer = ChatRenderer(model)
    tools = [ToolEntry(name="calculator"), ToolEntry(function="envs.problems.errands.price", workers=1)]
    world = ToolsWorld(ToolsConfig(tools=tools, protocol="hermes", train_tasks=8, held_out_tasks=2))
    calls = (
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "48 / 2"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "price", "arguments": {"item": "no lamp"}}\n</tool_call>'
    )
    replies = [f"Both at once.\n{calls}", "<answer>24</answer>"]

    async def play() -> Trajectory:
        try:
            return await episode(world, world.tasks("train")[0], replies, renderer, plan=made.plan(max_context=2048))
        finally:
            await world.close()

    played = asyncio.run(play())
    assert played.end is EpisodeEnd.ANSWERED
    assert played.state == {"calls": [{"name": "calculator", "ok": True}, {"name": "price", "ok": True}]}
    assert [message.role for message in played.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert '"calculator"' in played.messages[0].content and '"price"' in played.messages[0].content
    results = "<tool_response>\n24.0\n</tool_response>\n<tool_response>\nno such item\n</tool_response>"
    assert played.messages[3].content == results
    conversation = renderer.tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in played.messages], tokenize=False
    )
    context = [token for turn in played.turns for token in (*turn.added_ids, *turn.completion.token_ids)]
    assert context == list(renderer.encode(conversation.removesuffix("\n")))
    (sample,) = sample_trajectory(played, 1.0)
    ended = "".join(f"{text}<|im_end|>" for text in replies)
    assert renderer.decode(sample.token_ids[sample.loss_mask].tolist()) == ended


def test_packed_rows_and_the_tied_head_give_transformers_numbers(model: str) -> None:
    from transformers import AutoModelForCausalLM

    renderer = ChatRenderer(model)
    texts = [renderer.prompt_ids([ASKED]), renderer.text_ids("The capital of France is Paris.")]
    policy, plain = (
        load_policy(model, dtype="float32", attention_key="packed_sdpa"),
        AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
    )
    assert plain.config.tie_word_embeddings
    with torch.no_grad():
        packed, _ = policy(*pack_ids([list(ids) for ids in texts], torch.device("cpu")), 1.0, 64)
        logps = [part[1:] for part in packed.split([len(ids) for ids in texts])]
        for ids, ours in zip(texts, logps, strict=True):
            tokens = torch.tensor(ids)
            logp = plain(tokens.unsqueeze(0)).logits[0, :-1].log_softmax(-1)
            expected = logp.gather(1, tokens[1:].unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(ours, expected, atol=CLOSE, rtol=1e-4)


def test_two_steps_with_a_tool_an_export_and_an_evaluation(model: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = rlsys(
        "train", "quickstart", f"--run-dir={run}", f"model.path={model}", "stages.sft=null", "stages.rl.steps=2",
        "reward.name=functions", "reward.functions={tests.smollm2_cells.letters: 1.0}", "algorithm.kl_coef=0.0",
        "loop.groups_per_step=2", "loop.group_size=2", "rollout.max_turn_tokens=24", "env.max_turns=2",
        "env.train_tasks=8", "env.held_out_tasks=2", "eval.tasks=2", "eval.samples=0", "engine.max_num_seqs=8",
        "engine.kv_cache_mb=256", "learner.lr=1e-5", "stages.rl.learner.lr=1e-5", "tracker=none",
        "rollout.episode_timeout_s=600",
    )  # fmt: skip
    assert result.code == 0, result.output
    rows = records(run / "metrics.jsonl")
    assert len(rows) == 2 and sum(row["groups/trained"] for row in rows) >= 1
    assert max(row["mismatch/mean"] for row in rows if "mismatch/mean" in row) < CLOSE  # engine and learner agree
    exported = max(run.glob("checkpoints/step-*/hf"))
    from transformers import AutoModelForCausalLM

    before, after = (AutoModelForCausalLM.from_pretrained(str(path)) for path in (model, exported))
    assert after.config.tie_word_embeddings and after.num_parameters() == before.num_parameters()
    moved = (after.get_input_embeddings().weight - before.get_input_embeddings().weight).abs().max().item()
    assert 0 < moved < 1e-3
    output = tmp_path / "eval.json"
    evaluation = rlsys("eval", str(run / "config.yaml"), f"--checkpoint={run}", f"--output={output}", "eval.tasks=2")
    assert evaluation.code == 0 and output.is_file(), evaluation.output


@pytest.mark.parametrize("name", smollm2_cells.CELLS)
@pytest.mark.parametrize("dtype", smollm2_cells.DTYPES)
def test_everything_that_a_run_can_be(model: str, dtype: str, name: str, tmp_path: Path) -> None:
    smollm2_cells.run_cell(name, dtype, tmp_path)
