"""What a step plays: the lengths of its answers, by an assumption or as a run has played them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlsys.config.recipe import RecipeConfig
from rlsys.mixed_curriculum import Turns, weights_of

AT_LIMIT = " (all at their limit: give lengths with --answer-tokens or --from RUN)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What is played: by an assumption, or as a run has played it."""

    groups: Sequence[Sequence[tuple[float, float]]]  # (sampled tokens, seconds of tools and reward) of each episode
    packed: float  # tokens that the learner packs for an episode, prompts and results too
    said: str

    @property
    def mean_tokens(self) -> float:
        every = [tokens for group in self.groups for tokens, _ in group]
        return sum(every) / len(every)


def assume_answers(recipe: RecipeConfig, tokens: int | None) -> Answers:
    """All as long as the limits allow, or as given; prompts are in the number."""
    if recipe.envs:
        return _assume_mixed(recipe, tokens)
    rollout, window = recipe.rollout, recipe.engine.max_model_len
    turns = getattr(recipe.env, "max_turns", None) or 1
    longest = min(rollout.max_response_tokens or window, rollout.max_turn_tokens * turns, window)
    length = min(tokens, window) if tokens is not None else longest
    group = [(float(length), 0.0)] * recipe.loop.group_size
    why = "" if tokens is not None else AT_LIMIT
    return Answers(groups=[group], packed=float(length), said=f"answers of {length:,} tokens{why}")


def _assume_mixed(recipe: RecipeConfig, tokens: int | None) -> Answers:
    """Of several environments: as many groups of each as its share of a step's."""
    alone = {name: assume_answers(env_recipe, tokens) for name, env_recipe in recipe.by_env.items()}
    turns = Turns(weights_of(recipe.envs))
    groups = [alone[turns.of(sequence)[0]].groups[0] for sequence in range(recipe.loop.groups_per_step)]
    answers = Answers(groups=groups, packed=0.0, said="")
    lengths = ", ".join(f"{env_answers.packed:,.0f} tokens in {name}" for name, env_answers in alone.items())
    why = "" if tokens is not None else AT_LIMIT
    return replace(answers, packed=answers.mean_tokens, said=f"answers of {lengths}{why}")
