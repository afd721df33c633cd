"""What a chat template makes of a conversation: a program of the model's, which may raise and show anything."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

from cachetools import LRUCache

from actors.chat import ASKED, MARK, PROBE_OFFER, find_family, fold_inline, require_tools, to_template_messages
from envs.protocols.families.family import Family
from envs.protocols.native import FAMILIES, read_calls
from envs.text.words import THOUGHT_CLOSE, THOUGHT_OPEN
from rlsys.errors import BadInput
from rlsys.types import Message, ToolCall, ToolOffer
from rlsys.untrusted import describe_exception

NATIVE = "native"


class ChatTemplate:
    def __init__(self, tokenizer: Any, template_args: Mapping[str, Any], model_path: str) -> None:
        """tokenizer: with the template. model_path: named in errors."""
        self._tokenizer, self._args, self._model_path = tokenizer, template_args, model_path
        self._argument_texts = False  # whether the template takes the arguments of calls as JSON texts
        self._own_family: Family | None = None
        self._looked_for_family = False
        self._checked: LRUCache[ToolOffer, bool] = LRUCache(100)  # an agent may offer others with every request
        self._left_out: LRUCache[object, str] = LRUCache(1000)  # the role that the template does not show, by all roles

    def render(self, messages: Sequence[Message], *, open_turn: bool, offer: ToolOffer | None = None) -> str:
        chat = to_template_messages(messages, texts=self._argument_texts)
        tools = read_schemas(offer.schemas) if offer is not None and offer.form == NATIVE else None
        text = self._tokenizer.apply_chat_template(
            chat, tools=tools or None, tokenize=False, add_generation_prompt=open_turn, **self._args
        )
        assert isinstance(text, str)
        return text

    @cached_property
    def rewrites(self) -> tuple[str, ...]:
        """What the chat template shows in another way, or in another place, once later turns follow: Qwen3 drops
        thoughts, Mistral moves system text and tools to the last message of the user.

        Raises BadInput where it cannot be used: with these arguments, for one may need some to be usable at all.
        """
        try:
            return self._find_rewritten()
        except Exception as error:  # a template is a program of the model's
            broken = f"model.path={self._model_path!r}: its chat template cannot be used"
            raise BadInput(describe_exception(error), where=broken) from error

    def _find_rewritten(self) -> tuple[str, ...]:
        system = Message(role="system", content=MARK)
        if self._is_rewritten([ASKED], "."):
            return ("turns",)
        parts = ["thoughts"] if self._is_rewritten([ASKED], f"{THOUGHT_OPEN}\n{MARK}\n{THOUGHT_CLOSE}\n\n.") else []
        for part, prompt, offer in (("the system text", [system, ASKED], None), ("tools", [ASKED], PROBE_OFFER)):
            with contextlib.suppress(Exception):  # many templates know no system, or no tools: none can be played
                parts += [part] if self._is_rewritten(prompt, ".", offer) else []
        return tuple(parts)

    def _is_rewritten(self, prompt: Sequence[Message], text: str, offer: ToolOffer | None = None) -> bool:
        """Whether a made-up conversation of three turns is not the one of two, continued. A thought that the template
        opens itself stands in no history, and neither does the role that it leaves to the model to write."""
        chat, answer = list(prompt), Message(role="assistant", content=text)
        for _ in range(2):
            prefix = self.render(chat, open_turn=True, offer=offer).removesuffix(self.opened_thought)
            chat += [answer, ASKED]
            full_text = self.render(chat, open_turn=True, offer=offer)
            if not _continues(full_text, prefix, text if self.opening else ""):
                return True
        return False

    def has_rewritten(self, messages: Sequence[Message], replies: Sequence[Message], offer: ToolOffer | None) -> bool:
        """Whether the chat template, with the replies there, shows something else than what was seen and then said."""
        if not self.rewrites:
            return False
        *before, answer = fold_inline(messages)
        prefix = self.render(before, open_turn=True, offer=offer)
        full_text = self.render([*messages, *replies], open_turn=True, offer=offer)
        return not _continues(full_text, prefix, answer.content)

    def around(self) -> tuple[str, str]:
        """What the chat template writes before and after a message of the model's, between two of the user."""
        chat = [ASKED, Message(role="assistant", content=MARK), ASKED]
        before, _, after = self.render(chat, open_turn=True).partition(MARK)
        return before, after

    @cached_property
    def opening(self) -> str:
        """What the chat template writes to open a turn of the model's. Empty: it has no generation prompt."""
        closed, opened = (self.render([ASKED], open_turn=open_turn) for open_turn in (False, True))
        return opened.removeprefix(closed)

    @cached_property
    def opened_thought(self) -> str:
        """The thought that it opens there (`<think>` and a line break), which the model then does not write itself."""
        _, mark, rest = self.opening.rpartition(THOUGHT_OPEN)
        return "" if THOUGHT_CLOSE in rest else mark + rest * bool(mark)

    @cached_property
    def lead(self) -> str:
        """White space that the template writes between the opening of the model's turn and what it says: the model has
        to write it itself (Vicuna's `ASSISTANT:` and ` 5`)."""
        before, prefix = self.around()[0], self.render([ASKED], open_turn=True)
        lead = before.removeprefix(prefix) if before.startswith(prefix) else ""
        return "" if lead.strip() else lead

    def family(self, offer: ToolOffer) -> Family | None:
        """How this policy writes calls: in the family that is asked for, or else in its chat template's own."""
        if offer.form != NATIVE:
            return FAMILIES[offer.form]
        if not self._looked_for_family:
            self._looked_for_family = True
            for self._argument_texts in (False, True):
                self._own_family = find_family(self.render)
                if self._own_family is not None:
                    break
        return self._own_family

    def check_offer(self, offer: ToolOffer) -> None:
        """Raises BadInput where the policy would not see its tools, or where its calls could not be read."""
        if offer in self._checked:
            return
        family = self.family(offer)
        if offer.form == NATIVE and offer.schemas:
            try:
                require_tools(self.render, offer, family)
            except BadInput:
                raise
            except Exception as error:  # of a schema that it does not expect
                raise BadInput(f"the chat template does not take its tools ({describe_exception(error)})") from error
        self._checked[offer] = True

    def read_calls(self, text: str, offer: ToolOffer) -> tuple[ToolCall, ...]:
        """The calls in a message that was sampled, in their order."""
        family = self.family(offer)
        return () if family is None else read_calls(family, text, read_schemas(offer.schemas))

    def require_shown(self, messages: Sequence[Message], offer: ToolOffer | None) -> None:
        """Raises BadInput for a message that the chat template would leave out: a system text, or a tool's result."""
        key = tuple((message.role, message.inline, bool(message.calls)) for message in messages), offer
        role = self._left_out.get(key)
        if role is None:
            chat = [replace(message, content=f"{MARK}{at}{MARK}") for at, message in enumerate(messages)]
            role = ""
            with contextlib.suppress(Exception):  # one that reads what it shows: the messages themselves will tell
                text = self.render(chat, open_turn=True, offer=offer)
                role = next((message.role for message in chat if message.content not in text and not message.calls), "")
            self._left_out[key] = role
        if role:
            reason = f"the chat template leaves out a message of the {role}"
            roles = ", ".join(message.role for message in messages)
            raise BadInput(reason, where=f"a conversation of {roles}", expected="none, or another model.chat_template")


def _continues(full_text: str, prefix: str, answer: str) -> bool:
    return full_text.startswith(prefix) and full_text[len(prefix) :].lstrip().startswith(answer.strip())


@lru_cache(64)  # offers of tools: a world has one or a few
def read_schemas(schemas: tuple[str, ...]) -> list[dict[str, Any]]:
    """As templates take them. Not to be changed."""
    return [json.loads(schema) for schema in schemas]
