"""What makes tokens of messages, as those who play episodes need it (`actors.renderer`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlsys.types import Completion, Ints, Message, Sampled, ToolCall, ToolOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What the model sees next, and the environment's replies as they stand in it."""

    context_ids: Ints
    replies: tuple[Message, ...]
    num_reply_tokens: int  # the replies with their chat marks


class Renderer(Protocol):
    def under(self, template_args: Mapping[str, Any]) -> Renderer:
        """The one that gives the chat template these arguments."""
        ...

    def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None) -> Sequence[int]: ...
    def extend(
        self,
        context: Ints,
        completion: Completion,
        messages: Sequence[Message],
        replies: Sequence[Message],
        max_tokens: int | None,
        offer: ToolOffer | None,
    ) -> Continuation:
        """The next context. `messages` is the conversation up to `completion`; each reply is cut to `max_tokens`."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...
    def read_calls(self, text: str, offer: ToolOffer) -> tuple[ToolCall, ...]:
        """The calls in a message that was sampled, in their order. Raises nothing, whatever the text."""
        ...


def sampled_report(completion: Completion, num_context: int, renderer: Renderer | None) -> Sampled:
    """renderer: where each token is wanted as a text."""
    ids = completion.token_ids.tolist()
    texts = [] if renderer is None else [renderer.decode([token]) for token in ids]
    tokens = tuple(zip(texts, completion.logprobs.tolist(), strict=False))
    return Sampled(num_context=num_context, num_tokens=len(ids), stop=completion.stop, tokens=tokens)
