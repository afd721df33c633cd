"""Messages <-> tokens: the only owner of tokenising.

A conversation is rendered once, at its start. After that what the model sampled stays as it was sampled, and what the
environment says is rendered alone and appended. Only where a chat template rewrites history is it rendered again, and
a new training sample begins there: what was sampled is trained as it was sampled in either case.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import chain, groupby, pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from cachetools import LRUCache

from actors.chat import (
    ASKED,
    MARK,
    PROBE_OFFER,
    chat_form,
    find_family,
    fold_inline,
    join_results,
    map_texts,
    require_tools,
    texts_in,
    write_said,
)
from actors.end_tokens import read_ends
from actors.template_args import check_arguments
from envs.protocols.families.family import Family
from envs.protocols.native import FAMILIES, read_calls
from envs.text.words import THOUGHT_CLOSE, THOUGHT_OPEN
from rlsys.errors import BadInput
from rlsys.rollout import Continuation
from rlsys.types import Completion, Ints, Message, ToolCall, ToolOffer, TurnStop
from rlsys.untrusted import describe_exception

# For tokenizers without a chat template (base models): plain text, one message a line.
PLAIN_TEMPLATE = "{{ bos_token or '' }}{% for message in messages %}{{ message.content }}\n{% endfor %}"
NATIVE = "native"
CACHED_BYTES = 32 << 20  # of replies in tokens, a process: 2,000 of 2,000 tokens, and all that worlds say themselves
ENTRY_BYTES = 500  # of a reply in it without its text and tokens: measured
_PRIVATE_USE = (*range(0xE000, 0xF900), *range(0xF0000, 0x110000))  # letters that texts hardly ever hold


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
        self._argument_texts = False  # whether the template takes the arguments of calls as JSON texts
        self._own_family: Family | None = None
        self._looked_for_family = False
        self._checked: set[ToolOffer] = set()
        self._left_out: LRUCache[object, str] = LRUCache(1000)  # the role that the template does not show, by all roles
        if template is not None:
            self.tokenizer.chat_template = template
        self.has_template = self.tokenizer.chat_template is not None
        if not self.has_template:
            self.tokenizer.chat_template = PLAIN_TEMPLATE
        added = self.tokenizer.added_tokens_decoder.values()
        self.marks = sorted((token.content for token in added if token.special), key=len, reverse=True)
        self._mark_ids = frozenset(self.tokenizer.convert_tokens_to_ids(self.marks))
        check_arguments(self.tokenizer, self.template_args)
        self.ends = read_ends(model_path, self.tokenizer.eos_token_id)
        self.deltas: LRUCache[tuple[tuple[Message, ...], ToolOffer | None], Ints] = LRUCache(CACHED_BYTES, _bytes_of)

    def usable(self) -> ChatRenderer:
        """Itself. Raises BadInput where its chat template cannot be used with its arguments."""
        _ = self.rewrites
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
        if self._moves([ASKED], "."):
            return ("turns",)
        found = ["thoughts"] if self._moves([ASKED], f"{THOUGHT_OPEN}\n{MARK}\n{THOUGHT_CLOSE}\n\n.") else []
        for what, prompt, offer in (("the system text", [system, ASKED], None), ("tools", [ASKED], PROBE_OFFER)):
            with contextlib.suppress(Exception):  # many templates know no system, or no tools: none can be played
                found += [what] if self._moves(prompt, ".", offer) else []
        return tuple(found)

    def _moves(self, prompt: Sequence[Message], text: str, offer: ToolOffer | None = None) -> bool:
        """Whether a made-up conversation of three turns is not the one of two, continued. A thought that the template
        opens itself stands in no history, and neither does the role that it leaves to the model to write."""
        chat, said = list(prompt), Message(role="assistant", content=text)
        for _ in range(2):
            seen = self._render(chat, open_turn=True, offer=offer).removesuffix(self.opened_thought)
            chat += [said, ASKED]
            shown = self._render(chat, open_turn=True, offer=offer)
            if not _continues(shown, seen, text if self.opening else ""):
                return True
        return False

    def around(self) -> tuple[str, str]:
        """What the chat template writes before and after a message of the model's, between two of the user."""
        chat = [ASKED, Message(role="assistant", content=MARK), ASKED]
        before, _, after = self._render(chat, open_turn=True).partition(MARK)
        return before, after

    @cached_property
    def opening(self) -> str:
        """What the chat template writes to open a turn of the model's. Empty: it has no generation prompt."""
        closed, opened = (self._render([ASKED], open_turn=each) for each in (False, True))
        return opened.removeprefix(closed)

    @cached_property
    def opened_thought(self) -> str:
        """The thought that it opens there (`<think>` and a line break), which the model then does not write itself."""
        _, mark, rest = self.opening.rpartition(THOUGHT_OPEN)
        return "" if THOUGHT_CLOSE in rest else mark + rest * bool(mark)

    @cached_property
    def turn_end(self) -> int | None:
        """The token with which the model ends what it says: as its chat template shows it, where that is one of
        `ends` (Gemma's texts end with <eos>, its turns with <end_of_turn>), else the tokenizer's. None without any."""
        ending = self.ending
        return ending[-1] if ending else None

    @cached_property
    def ending(self) -> tuple[int, ...]:
        """What the model writes to end its turn: a token, behind the white space that the template has before it."""
        return self._ending_of(self._encode_inside(self.around()[1]))

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

    @cached_property
    def _lead(self) -> str:
        """White space that the template writes between the opening of the model's turn and what it says: the model has
        to write it itself (Vicuna's `ASSISTANT:` and ` 5`)."""
        before, seen = self.around()[0], self._render([ASKED], open_turn=True)
        lead = before.removeprefix(seen) if before.startswith(seen) else ""
        return "" if lead.strip() else lead

    def _render(self, messages: Sequence[Message], *, open_turn: bool, offer: ToolOffer | None = None) -> str:
        chat = chat_form(messages, texts=self._argument_texts)
        tools = _read_schemas(offer.schemas) if offer is not None and offer.form == NATIVE else None
        text = self.tokenizer.apply_chat_template(
            chat, tools=tools or None, tokenize=False, add_generation_prompt=open_turn, **self.template_args
        )
        assert isinstance(text, str)
        return text

    def family(self, offer: ToolOffer) -> Family | None:
        """How this policy writes calls: in the family that is asked for, or else in its chat template's own."""
        if offer.form != NATIVE:
            return FAMILIES[offer.form]
        if not self._looked_for_family:
            self._looked_for_family = True
            for self._argument_texts in (False, True):
                self._own_family = find_family(self._render)
                if self._own_family is not None:
                    break
        return self._own_family

    def check_offer(self, offer: ToolOffer) -> None:
        """Raises BadInput where the policy would not see its tools, or where its calls could not be read."""
        family = self.family(offer)
        if offer.form == NATIVE and offer.schemas:
            try:
                require_tools(self._render, offer, family)
            except BadInput:
                raise
            except Exception as error:  # of a schema that it does not expect
                raise BadInput(f"the chat template does not take its tools ({describe_exception(error)})") from error

    def read_calls(self, text: str, offer: ToolOffer) -> tuple[ToolCall, ...]:
        """The calls in a message that was sampled, in their order."""
        family = self.family(offer)
        return () if family is None else read_calls(family, text, _read_schemas(offer.schemas))

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Text is text: a chat mark in it (`<|im_end|>` on a web page) is spelled out, and is never the token itself.

        What a person, a file, a world, a tool or a model of elsewhere wrote becomes tokens here and nowhere else.
        """
        if not any(mark in text for mark in self.marks):
            return self.encode(text)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        if self._mark_ids.isdisjoint(ids):
            return tuple(ids)
        pieces = re.split(f"({'|'.join(map(re.escape, self.marks))})", text)  # a vocabulary that has marks as words
        halves = chain.from_iterable((each[:1], each[1:]) if each in self.marks else (each,) for each in pieces)
        return tuple(chain.from_iterable(map(self.encode, halves)))

    def _inner_ids(self, text: str, before: str = "") -> tuple[int, ...]:
        """`text_ids` of what stands behind other text."""
        return self.text_ids(text) if any(mark in text for mark in self.marks) else self._encode_inside(text, before)

    def _encode_inside(self, text: str, before: str = "") -> tuple[int, ...]:
        """`encode` of what stands behind other text, such as `before`: many sentencepiece tokenizers put a space in
        front of whatever they are given (Llama 2's, Mistral's, TinyLlama's), and there none stands there."""
        if self._puts_space:
            for head in filter(None, (before, ".", "\n")):
                ids, first = self.encode(head + text), self.encode(head)
                if ids[: len(first)] == first:
                    return ids[len(first) :]
        return self.encode(text)

    @cached_property
    def _puts_space(self) -> bool:
        return self.encode("x") != self.encode("\nx")[len(self.encode("\n")) :]

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of what a chat template wrote: its marks are tokens."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=False)
        assert isinstance(text, str)
        return text

    def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
        """The first context: tools and prompt, and the opening of the model's turn. An inline prompt (of a base model,
        which knows no chat) stands as it is, after the token that begins a text where the model has one.

        Raises BadInput for an offer as `check_offer` does.
        """
        if offer is not None and offer not in self._checked:
            self.check_offer(offer)
            self._checked.add(offer)
        if messages and all(message.inline for message in messages):
            return self._beginning() + self.text_ids("".join(message.content for message in messages))
        self._require_shown(messages, offer)
        return self._tokens(*self._render_marked(messages, offer))

    def _require_shown(self, messages: Sequence[Message], offer: ToolOffer | None) -> None:
        """Raises BadInput for a message that the chat template would leave out: a system text, or a tool's result."""
        key = tuple((message.role, message.inline, bool(message.calls)) for message in messages), offer
        role = self._left_out.get(key)
        if role is None:
            marked = [replace(each, content=f"{MARK}{at}{MARK}") for at, each in enumerate(messages)]
            role = ""
            with contextlib.suppress(Exception):  # one that reads what it shows: the messages themselves will tell
                shown = self._render(marked, open_turn=True, offer=offer)
                role = next((each.role for each in marked if each.content not in shown and not each.calls), "")
            self._left_out[key] = role
        if role:
            what = f"the chat template leaves out a message of the {role}"
            roles = ", ".join(message.role for message in messages)
            raise BadInput(what, where=f"a conversation of {roles}", expected="none, or another model.chat_template")

    def _beginning(self) -> tuple[int, ...]:
        """The token that begins a text, where the tokenizer adds one."""
        framed, text = tuple(self.tokenizer.encode(".")), self.encode(".")
        return framed[: framed.index(text[0])]

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
        said = tuple(replies)
        if max_tokens is not None:
            said = tuple(replace(reply, content=self._cut(reply.content, max_tokens)) for reply in said)
        said = _shown(said, offer)
        if all(reply.inline for reply in said):
            added = self._inner_ids("".join(reply.content for reply in said))
            sampled = completion.token_ids[:-1] if completion.stop is TurnStop.EOS else completion.token_ids
            return Continuation(context_ids=_join(context, sampled, added), replies=said, num_reply_tokens=len(added))
        delta = self._delta(said, offer)
        if self._rewritten(messages, said, offer):
            rewritten = self._tokens(*self._render_marked([*messages, *said], offer))
            return Continuation(context_ids=_join(rewritten), replies=said, num_reply_tokens=len(delta))
        at = self._end_at(delta)
        if completion.stop is TurnStop.EOS and at is not None and completion.token_ids[-1] == delta[at]:
            delta = delta[at + 1 :]  # sampled already: the model ended its turn itself, with this one of its end tokens
        return Continuation(
            context_ids=_join(context, completion.token_ids, delta), replies=said, num_reply_tokens=len(delta)
        )

    def _delta(self, replies: tuple[Message, ...], offer: ToolOffer | None) -> Ints:
        """The tokens between two completions: the end of the model's turn, the replies, the next turn's opening."""
        key = (replies, offer)
        delta = self.deltas.get(key)
        if delta is None:
            shown, marks = self._render_marked([ASKED, Message(role="assistant", content=MARK), *replies], offer)
            _, found, after = shown.partition(MARK)
            if not found:
                raise BadInput("the tokenizer's chat template drops assistant messages from history: it cannot be used")
            self._require_shown([ASKED, Message(role="assistant", content=MARK), *replies], offer)
            delta = np.asarray(self._tokens(after, marks, inside=True), np.int32)
            if _bytes_of(delta) <= CACHED_BYTES:
                self.deltas[key] = delta
        return delta

    def _render_marked(self, messages: Sequence[Message], offer: ToolOffer | None) -> tuple[str, dict[str, str]]:
        """A conversation with the next turn opened, where a letter stands for each chat mark that its messages or its
        tools hold: what a server says of its tools is as hostile as what they say."""
        hidden, schemas, marks = self._hide_marks(messages, offer.schemas if offer is not None else ())
        shown = None if offer is None else replace(offer, schemas=schemas)
        try:
            return self._render(hidden, open_turn=True, offer=shown), marks
        except Exception as error:
            # A template may refuse a role, two turns of one side, or a prompt without a question.
            roles = ", ".join(message.role for message in messages)
            refused = f"the chat template does not take it ({describe_exception(error)})"
            raise BadInput(refused, where=f"a conversation of {roles}") from error

    def _hide_marks(
        self, messages: Sequence[Message], schemas: tuple[str, ...] = ()
    ) -> tuple[list[Message], tuple[str, ...], dict[str, str]]:
        """Both with a letter for each chat mark in them, and which mark each letter stands for."""
        held = "".join([*map(texts_in, messages), *schemas])
        letters = (chr(code) for code in _PRIVATE_USE if chr(code) not in held)
        marks = {next(letters): mark for mark in self.marks if mark in held}

        def hide(text: str) -> str:
            for letter, mark in marks.items():
                text = text.replace(mark, letter)
            return text

        if not marks:
            return list(messages), schemas, marks
        return [map_texts(message, hide) for message in messages], tuple(map(hide, schemas)), marks

    def _tokens(self, shown: str, marks: Mapping[str, str], *, inside: bool = False) -> tuple[int, ...]:
        """Its tokens: the template's own marks are special tokens, those that messages hold are only text. inside: it
        stands behind other text."""
        encode = self._encode_inside if inside else self.encode
        if not marks:
            return encode(shown)
        first, *rest = re.split(f"([{''.join(marks)}])", shown)
        pieces = (self.text_ids(marks[each]) if each in marks else self._encode_inside(each) for each in rest)
        return tuple(chain(encode(first), *pieces))

    def _cut(self, text: str, max_tokens: int) -> str:
        """The beginning of the text that `max_tokens` tokens cover, without half a character at its end."""
        options = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": True}
        offsets = self.tokenizer(text, **options)["offset_mapping"]
        if len(offsets) <= max_tokens:
            return text
        return text[: min(offsets[max_tokens - 1][1], offsets[max_tokens][0])]

    def _rewritten(self, messages: Sequence[Message], replies: Sequence[Message], offer: ToolOffer | None) -> bool:
        """Whether the chat template, with the replies there, shows something else than what was seen and then said."""
        if not self.rewrites:
            return False
        *before, said = fold_inline(messages)
        seen = self._render(before, open_turn=True, offer=offer)
        shown = self._render([*messages, *replies], open_turn=True, offer=offer)
        return not _continues(shown, seen, said.content)

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
        kinds = groupby(messages[num_prompt:], lambda each: (each.role == "assistant", each.inline))
        for (of_model, inline), found in kinds:
            if of_model:
                for message in found:
                    begun = self._begun(message) if new_turn else message
                    add(self._said_ids(begun, offer, self.opening if new_turn else ""), True)
                    open_turn, new_turn = not message.content.endswith(tuple(stop)), False
                continue
            new_turn = not inline
            if inline:
                add(self._inner_ids("".join(each.content for each in found)), False)
            else:
                delta = self._delta(_shown(tuple(found), offer), offer).tolist()
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
        if not (self.opened_thought and chat):
            return
        parts = [list(part) for _, part in groupby(messages, _is_reply)]
        for before, turn in pairwise([[], *(parts[:-1] if truncated else parts)]):
            if _is_reply(turn[0]) or (before and before[-1].role == "tool"):  # behind a result R1 opens no thought
                continue
            if not any(THOUGHT_CLOSE in message.content for message in turn):
                what = "no end of the thought that the chat template opens"
                expected = f"a thought and {THOUGHT_CLOSE} before the answer, or another model.chat_template"
                raise BadInput(what, where="an answer", expected=expected)

    def _begun(self, message: Message) -> Message:
        """What the model says after the opening of its turn: after a thought that the template has opened, whose tag
        stands there once, or after white space that it has not written yet.

        Raises BadInput for a second thought.
        """
        if message.content.startswith(THOUGHT_OPEN):
            closed = self.opening[self.opening.find(THOUGHT_OPEN) :].strip() if THOUGHT_CLOSE in self.opening else ""
            if closed and message.content.startswith(closed):
                return replace(message, content=message.content.removeprefix(closed).lstrip("\n"))
            if closed:
                what = "a thought behind the one that the chat template has closed"
                raise BadInput(what, where="an answer", expected="none, or other env.template_args (enable_thinking)")
            if self.opened_thought:
                rest = message.content.removeprefix(THOUGHT_OPEN).removeprefix(
                    self.opened_thought.removeprefix(THOUGHT_OPEN)
                )
                return replace(message, content=rest)
        lead = "" if message.calls or message.content[:1].isspace() else self._lead
        return replace(message, content=lead + message.content)

    def _said_ids(self, message: Message, offer: ToolOffer | None, before: str) -> tuple[int, ...]:
        """What a model would have sampled to say it: calls as the chat template writes them, else as their family."""
        if not message.calls:
            return self._inner_ids(message.content, before)
        if offer is None:
            called = message.calls[0].name
            raise BadInput(
                f"a message calls the tool {called!r}: this environment offers none in the model's own format"
            )
        (hidden,), _, marks = self._hide_marks([message])
        family = self.family(offer)
        if family is None:
            raise BadInput("the chat template writes no calls of tools", where="a demonstration")
        try:
            written = write_said(self._render, hidden, offer)
        except Exception:  # a template that shows one call at most, for one
            written = ""
        if not written or hidden.content.strip() not in written:  # or one that shows no text beside calls
            written = family.write(hidden.content, hidden.calls)
        return self._tokens(written, marks)


def _is_reply(message: Message) -> bool:
    """Whether it ends the model's turn."""
    return message.role != "assistant" and not message.inline


def _continues(shown: str, seen: str, said: str) -> bool:
    return shown.startswith(seen) and shown[len(seen) :].lstrip().startswith(said.strip())


def _bytes_of(delta: Ints) -> int:
    """Of it, of the text that it stands for, about as many, and of the objects that hold both."""
    return ENTRY_BYTES + 2 * delta.nbytes


@lru_cache(64)  # offers of tools: a world has one or a few
def _read_schemas(schemas: tuple[str, ...]) -> list[dict[str, Any]]:
    """As templates take them. Not to be changed."""
    return [json.loads(each) for each in schemas]


def _shown(replies: tuple[Message, ...], offer: ToolOffer | None) -> tuple[Message, ...]:
    """What answers one message of the model's, as the chat template is given it."""
    return replies if offer is None or offer.form == NATIVE else join_results(replies)


def _join(*parts: Sequence[int] | Ints) -> Ints:
    return np.concatenate([np.asarray(part, np.int32) for part in parts])
