"""Episodes in which the model says what a test wrote: every part is real but the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from actors.renderer import ChatRenderer
from envs.base import World
from learners.scratch import train_tokenizer
from rlsys.rollout import RolloutPlan, TurnRequest, run_episode
from rlsys.types import Completion, Reward, Task, Trajectory, Transcript, TurnStop
from tests.makers import made


def tokenizer_in(folder: Path, texts: Iterable[str], tags: Sequence[str], size: int = 400) -> Path:
    """As a model's folder has it, trained on these texts."""
    train_tokenizer(texts, tags, vocab_size=size, max_positions=512).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    return folder


async def episode(
    world: World,
    task: Task,
    texts: Iterable[str],
    renderer: ChatRenderer,
    *,
    score: Callable[[Transcript], Awaitable[Reward]] = made.no_reward,
    plan: RolloutPlan = made.PLAN,
) -> Trajectory:
    """A text that no stop string ends is ended by the model's own token."""
    script = iter(texts)

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        text = next(script)
        stopped = text.endswith(tuple(request.stop))
        ids = renderer.encode(text) + (() if stopped else (renderer.tokenizer.eos_token_id,))
        return made.completion(ids, text, stop=TurnStop.STOP if stopped else TurnStop.EOS)

    player, source = made.player(renderer, generate), made.Source(world.open_env, world.max_turns, score)
    return await run_episode(player, source, task, plan, max_turns=world.max_turns, seed=0, sibling=0)
