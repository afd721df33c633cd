"""Messages <-> tokens: the only owner of tokenising.

A conversation is rendered once, at its start. After that what the model sampled stays as it was sampled, and what the
environment says is rendered alone and appended. Only where a chat template rewrites history is it rendered again, and
a new training sample begins there: what was sampled is trained as it was sampled in either case.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from cachetools import LRUCache

from actors.chat import ASKED, MARK, join_results, write_calls
from actors.chat_template import NATIVE, ChatTemplate
from actors.end_tokens import read_ends
from actors.template_args import check_arguments
from actors.text_tokens import TextTokens
from envs.text.words import THOUGHT_CLOSE, THOUGHT_OPEN
from rlsys.errors import BadInput
from rlsys.rendering import Continuation
from rlsys.types import Completion, Ints, Message, ToolOffer, TurnStop
from rlsys.untrusted import describe_exception

# For tokenizers without a chat template (base models): plain text, one message a line.
PLAIN_TEMPLATE = "{{ bos_token or '' }}{% for message in messages %}{{ message.content }}\n{% endfor %}"
CACHED_BYTES = 32 << 20  # of replies in tokens, a process: 2,000 of 2,000 tokens, and all that worlds say themselves
ENTRY_BYTES = 500  # of a reply in it without its text and tokens: measured


class ChatRenderer:
    def __init__(
        self,
        model_path: str,
        *,
        template: str | None = None,
        template_args: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Loads the tokenizer of a hub name or local folder. Raises BadInput when there is none. template: in the place
        of the tokenizer's own."""
        from transformers import AutoTokenizer

        try:
            # A text is what its tokens say: the cleaning that some configurations ask for takes spaces out of it, and
            # transformers refuses it for most of these models anyway, with a line of its own.
            self.tokenizer = AutoTokenizer.from_pretrained(
                model_path, trust_remote_code=False, clean_up_tokenization_spaces=False
            )
        except Exception as error:  # transformers raises a dozen kinds for one cause: no usable tokenizer there
            reason = str(error).strip().split("\n")[0][:200]
            raise BadInput(
                f"no tokenizer can be loaded from it ({reason})", key="model.path", found=model_path
            ) from error
        self._model_path, self.template, self.template_args = model_path, template, dict(template_args)
        self._under: dict[str, ChatRenderer] = {}
        if template is not None:
            self.tokenizer.chat_template = template
        self.has_template = self.tokenizer.chat_template is not None
        if not self.has_template:
            self.tokenizer.chat_template = PLAIN_TEMPLATE
        check_arguments(self.tokenizer, self.template_args)
        self.chat = ChatTemplate(self.tokenizer, self.template_args, model_path)
        self.text = TextTokens(self.tokenizer)
        self.encode, self.decode, self.text_ids = self.text.encode, self.text.decode, self.text.text_ids
        self.marks, self.read_calls = self.text.marks, self.chat.read_calls
        self.ends = read_ends(model_path, self.tokenizer.eos_token_id)
        self.deltas: LRUCache[tuple[tuple[Message, ...], bytes], Ints] = LRUCache(CACHED_BYTES, _cache_entry_bytes)

    def usable(self) -> ChatRenderer:
        """Itself. Raises BadInput where its chat template cannot be used with its arguments."""
        _ = self.chat.rewrites
        return self

    def under(self, template_args: Mapping[str, Any]) -> ChatRenderer:
        """The one that gives the chat template these arguments (`env.template_args`), and no others. Raises BadInput
        for one that the template does not take."""
        if template_args == self.template_args:
            return self
        key = json.dumps(template_args, sort_keys=True, default=repr)
        if key not in self._under:
            self._under[key] = ChatRenderer(self._model_path, template=self.template, template_args=template_args)
        return self._under[key]

    @property
    def vocabulary_size(self) -> int:
        """In tokens, added ones too."""
        return len(self.tokenizer)

    @cached_property
    def turn_end(self) -> int | None:
        """The token with which the model ends what it says: as its chat template shows it, where that is one of
        `ends` (Gemma's texts end with <eos>, its turns with <end_of_turn>), else the tokenizer's. None without any."""
        ending = self.ending
        return ending[-1] if ending else None

    @cached_property
    def ending(self) -> tuple[int, ...]:
        """What the model writes to end its turn: a token, behind the white space that the template has before it."""
        return self._ending_of(self.text.encode_inside(self.chat.around()[1]))

    def _ending_of(self, delta: Sequence[int]) -> tuple[int, ...]:
        """delta: what the template writes after the model's message."""
        at = self._end_at(delta)
        if at is not None:
            return tuple(delta[: at + 1])
        end: int | None = self.tokenizer.eos_token_id
        return () if end is None else (end,)

    def _end_at(self, delta: Sequence[int] | Ints) -> int | None:
        """Where the end token of a turn stands: at the beginning, or behind a space or a line break (Llama 2's)."""
        at = next((at for at, token in enumerate(delta) if int(token) in self.ends), None)
        return at if at is not None and not self.decode([int(token) for token in delta[:at]]).strip() else None

    def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
        """The first context: tools and prompt, and the opening of the model's turn. An inline prompt (of a base model,
        which knows no chat) stands as it is, after the token that begins a text where the model has one.

        Raises BadInput for an offer as `ChatTemplate.check_offer` does.
        """
        if offer is not None:
            self.chat.check_offer(offer)
        if messages and all(message.inline for message in messages):
            text = "".join(message.content for message in messages)
            return self.text.beginning() + self.text.open_ids(text, first=True)
        self.chat.require_shown(messages, offer)
        return self.text.encode_shown(*self._render_marked(messages, offer))

    def extend(
        self,
        context: Ints,
        completion: Completion,
        messages: Sequence[Message],
        replies: Sequence[Message],
        max_tokens: int | None = None,
        offer: ToolOffer | None = None,
    ) -> Continuation:
        """What the model sees after its completion and the environment's replies to it.

        `messages` is the conversation up to and with the completion's text. A single inline reply continues the model's
        turn, so an end of turn that was sampled before it is taken back: a new training sample starts there. One starts
        too where the chat template rewrites what stands earlier (Qwen3's drops thoughts). Results that are the
        user's, as an offer with a form of its own has them, become one message after each is cut.
        """
        feedback = tuple(replies)
        if max_tokens is not None:
            feedback = tuple(replace(reply, content=self.text.cut(reply.content, max_tokens)) for reply in feedback)
        feedback = _join_replies(feedback, offer)
        if all(reply.inline for reply in feedback):
            ids = self.text.open_ids("".join(reply.content for reply in feedback))
            sampled = completion.token_ids[:-1] if completion.stop is TurnStop.EOS else completion.token_ids
            return Continuation(context_ids=_concat(context, sampled, ids), replies=feedback, num_reply_tokens=len(ids))
        delta = self._delta(feedback, offer)
        if self.chat.has_rewritten(messages, feedback, offer):
            rewritten = self.text.encode_shown(*self._render_marked([*messages, *feedback], offer))
            return Continuation(context_ids=_concat(rewritten), replies=feedback, num_reply_tokens=len(delta))
        at = self._end_at(delta)
        if completion.stop is TurnStop.EOS and at is not None and completion.token_ids[-1] == delta[at]:
            delta = delta[at + 1 :]  # sampled already: the model ended its turn itself, with this one of its end tokens
        return Continuation(
            context_ids=_concat(context, completion.token_ids, delta), replies=feedback, num_reply_tokens=len(delta)
        )

    def _delta(self, replies: tuple[Message, ...], offer: ToolOffer | None) -> Ints:
        """The tokens between two completions: the end of the model's turn, the replies, the next turn's opening."""
        key = (replies, b"" if offer is None else hashlib.sha256(repr(offer).encode(errors="replace")).digest())
        delta = self.deltas.get(key)
        if delta is None:
            full_text, marks = self._render_marked([ASKED, Message(role="assistant", content=MARK), *replies], offer)
            _, mark, after = full_text.partition(MARK)
            if not mark:
                raise BadInput("the tokenizer's chat template drops assistant messages from history: it cannot be used")
            self.chat.require_shown([ASKED, Message(role="assistant", content=MARK), *replies], offer)
            delta = np.asarray(self.text.encode_shown(after, marks, inside=True), np.int32)
            if _cache_entry_bytes(delta) <= CACHED_BYTES:
                self.deltas[key] = delta
        return delta

    def _render_marked(self, messages: Sequence[Message], offer: ToolOffer | None) -> tuple[str, dict[str, str]]:
        """A conversation with the next turn opened, where a letter stands for each chat mark that its messages or its
        tools hold: what a server says of its tools is as hostile as what they say."""
        hidden, schemas, marks = self.text.hide_marks(messages, offer.schemas if offer is not None else ())
        hidden_offer = None if offer is None else replace(offer, schemas=schemas)
        try:
            return self.chat.render(hidden, open_turn=True, offer=hidden_offer), marks
        except Exception as error:
            # A template may refuse a role, two turns of one side, or a prompt without a question.
            roles = ", ".join(message.role for message in messages)
            refused = f"the chat template does not take it ({describe_exception(error)})"
            raise BadInput(refused, where=f"a conversation of {roles}") from error

    def demonstration(
        self,
        messages: Sequence[Message],
        num_prompt: int,
        stop: Sequence[str],
        *,
        truncated: bool = False,
        offer: ToolOffer | None = None,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(token_ids, loss_mask) of a worked episode, token for token what a rollout of it would have produced.

        That holds where the chat template rewrites nothing that was said, for a demonstration is one sample.
        messages[:num_prompt] is the prompt; then assistant and environment messages in turn. What no `stop` string ends
        is ended by the model itself, unless an inline reply continues the same turn, or it was `truncated` at its end.
        """
        ids = list(self.prompt_ids(messages[:num_prompt], offer))
        mask = [0] * len(ids)

        def add(new: Sequence[int], sampled: bool) -> None:
            ids.extend(new)
            mask.extend([int(sampled)] * len(new))

        new_turn = not all(message.inline for message in messages[:num_prompt])  # that the template has opened
        open_turn = False  # of the model's, which it has to end itself
        self._require_closed(messages[num_prompt:], chat=new_turn, truncated=truncated)
        kinds = groupby(messages[num_prompt:], lambda message: (message.role == "assistant", message.inline))
        for (of_model, inline), part in kinds:
            if of_model:
                for message in part:
                    answer = self._after_opening(message) if new_turn else message
                    add(self.assistant_token_ids(answer, offer, self.chat.opening if new_turn else ""), True)
                    open_turn, new_turn = not message.content.endswith(tuple(stop)), False
                continue
            new_turn = not inline
            if inline:
                add(self.text.open_ids("".join(message.content for message in part)), False)
            else:
                delta = self._delta(_join_replies(tuple(part), offer), offer).tolist()
                if open_turn:
                    end = self._ending_of(delta)
                    add(end, True)
                    delta = delta[len(end) :] if tuple(delta[: len(end)]) == end else delta
                add(delta, False)
            open_turn = False
        of_text = all(message.inline for message in messages[:num_prompt])  # which knows no turns
        if open_turn and not truncated:
            add(self._ending_of(()) if of_text else self.ending, True)
        return tuple(ids), tuple(mask)

    def _require_closed(self, messages: Sequence[Message], *, chat: bool, truncated: bool) -> None:
        """Raises BadInput for a turn of the model's that would stand within the thought that the template opens."""
        if not (self.chat.opened_thought and chat):
            return
        parts = [list(part) for _, part in groupby(messages, _is_reply)]
        for before, turn in pairwise([[], *(parts[:-1] if truncated else parts)]):
            if _is_reply(turn[0]) or (before and before[-1].role == "tool"):  # behind a result R1 opens no thought
                continue
            if not any(THOUGHT_CLOSE in message.content for message in turn):
                reason = "no end of the thought that the chat template opens"
                expected = f"a thought and {THOUGHT_CLOSE} before the answer, or another model.chat_template"
                raise BadInput(reason, where="an answer", expected=expected)

    def _after_opening(self, message: Message) -> Message:
        """What the model says after the opening of its turn: after a thought that the template has opened, whose tag
        stands there once, or after white space that it has not written yet.

        Raises BadInput for a second thought.
        """
        if message.content.startswith(THOUGHT_OPEN):
            opening, opened = self.chat.opening, self.chat.opened_thought
            closed = opening[opening.find(THOUGHT_OPEN) :].strip() if THOUGHT_CLOSE in opening else ""
            if closed and message.content.startswith(closed):
                return replace(message, content=message.content.removeprefix(closed).lstrip("\n"))
            if closed:
                reason = "a thought behind the one that the chat template has closed"
                raise BadInput(reason, where="an answer", expected="none, or other env.template_args (enable_thinking)")
            if opened:
                content = message.content.removeprefix(THOUGHT_OPEN).removeprefix(opened.removeprefix(THOUGHT_OPEN))
                return replace(message, content=content)
        lead = "" if message.calls or message.content[:1].isspace() else self.chat.lead
        return replace(message, content=lead + message.content)

    def assistant_token_ids(self, message: Message, offer: ToolOffer | None, before: str = "") -> tuple[int, ...]:
        """What a model would have sampled to say it: calls as the chat template writes them, else as their family."""
        if not message.calls:
            return self.text.inner_ids(message.content, before)
        if offer is None:
            called = message.calls[0].name
            raise BadInput(
                f"a message calls the tool {called!r}: this environment offers none in the model's own format"
            )
        (hidden,), _, marks = self.text.hide_marks([message])
        family = self.chat.family(offer)
        if family is None:
            raise BadInput("the chat template writes no calls of tools", where="a demonstration")
        try:
            written = write_calls(self.chat.render, hidden, offer)
        except Exception:  # a template that shows one call at most, for one
            written = ""
        if not written or hidden.content.strip() not in written:  # or one that shows no text beside calls
            written = family.write(hidden.content, hidden.calls)
        return self.text.encode_shown(written, marks)


def _is_reply(message: Message) -> bool:
    """Whether it ends the model's turn."""
    return message.role != "assistant" and not message.inline


def _cache_entry_bytes(delta: Ints) -> int:
    """Of it, of the text that it stands for, about as many, and of the objects that hold both."""
    return ENTRY_BYTES + 2 * delta.nbytes


def _join_replies(replies: tuple[Message, ...], offer: ToolOffer | None) -> tuple[Message, ...]:
    """What answers one message of the model's, as the chat template is given it."""
    return replies if offer is None or offer.form == NATIVE else join_results(replies)


def _concat(*parts: Sequence[int] | Ints) -> Ints:
    return np.concatenate([np.asarray(part, np.int32) for part in parts])
