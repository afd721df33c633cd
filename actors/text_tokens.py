"""Text <-> tokens. Text is text: a chat mark that it holds is spelled out, and is never the token itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from actors.chat import all_texts, map_texts
from rlsys.types import Message

_PRIVATE_USE = (*range(0xE000, 0xF900), *range(0xF0000, 0x110000))  # letters that texts hardly ever hold


class TextTokens:
    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder.values()
        self.marks = sorted((token.content for token in added if token.special), key=len, reverse=True)
        self._mark_ids = frozenset(tokenizer.convert_tokens_to_ids(self.marks))

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of what a chat template wrote: its marks are tokens."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(list(token_ids), skip_special_tokens=False)
        assert isinstance(text, str)
        return text

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Text is text: a chat mark in it (`<|im_end|>` on a web page) is spelled out, and is never the token itself.

        What a person, a file, a world, a tool or a model of elsewhere wrote becomes tokens here and nowhere else.
        """
        if not any(mark in text for mark in self.marks):
            return self.encode(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        if self._mark_ids.isdisjoint(ids):
            return tuple(ids)
        pieces = re.split(f"({'|'.join(map(re.escape, self.marks))})", text)  # a vocabulary that has marks as words
        halves = chain.from_iterable((piece[:1], piece[1:]) if piece in self.marks else (piece,) for piece in pieces)
        return tuple(chain.from_iterable(map(self.encode, halves)))

    def inner_ids(self, text: str, before: str = "") -> tuple[int, ...]:
        """`text_ids` of what stands behind other text."""
        return self.text_ids(text) if any(mark in text for mark in self.marks) else self.encode_inside(text, before)

    def open_ids(self, text: str, *, first: bool = False) -> tuple[int, ...]:
        """Of a text that the model continues; `first`: that nothing stands before. White space at its end has the
        tokens that it has in front of more text, as a pretrained model knows it: GPT-2's and SmolLM2's tokenizers
        give a blank line another one where nothing follows, after which SmolLM2 forgets what examples have shown it."""
        encode = self.text_ids if first else self.inner_ids
        if text[-1:].isspace():
            ids = encode(f"{text}<")
            if ids[-len(self._more) :] == self._more:
                return ids[: -len(self._more)]
        return encode(text)

    @cached_property
    def _more(self) -> tuple[int, ...]:
        return self.encode_inside("<")

    def encode_inside(self, text: str, before: str = "") -> tuple[int, ...]:
        """`encode` of what stands behind other text, such as `before`: many sentencepiece tokenizers put a space in
        front of whatever they are given (Llama 2's, Mistral's, TinyLlama's), and there none stands there."""
        if self._prepends_space:
            for head in filter(None, (before, ".", "\n")):
                ids, first = self.encode(head + text), self.encode(head)
                if ids[: len(first)] == first:
                    return ids[len(first) :]
        return self.encode(text)

    @cached_property
    def _prepends_space(self) -> bool:
        return self.encode("x") != self.encode("\nx")[len(self.encode("\n")) :]

    def beginning(self) -> tuple[int, ...]:
        """The token that begins a text, where the tokenizer adds one."""
        framed, text = tuple(self._tokenizer.encode(".")), self.encode(".")
        return framed[: framed.index(text[0])]

    def cut(self, text: str, max_tokens: int) -> str:
        """The beginning of the text that `max_tokens` tokens cover, without half a character at its end."""
        options = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": True}
        offsets = self._tokenizer(text, **options)["offset_mapping"]
        if len(offsets) <= max_tokens:
            return text
        return text[: min(offsets[max_tokens - 1][1], offsets[max_tokens][0])]

    def hide_marks(
        self, messages: Sequence[Message], schemas: tuple[str, ...] = ()
    ) -> tuple[list[Message], tuple[str, ...], dict[str, str]]:
        """Both with a letter for each chat mark in them, and which mark each letter stands for."""
        full_text = "".join([*map(all_texts, messages), *schemas])
        letters = (chr(code) for code in _PRIVATE_USE if chr(code) not in full_text)
        marks = {next(letters): mark for mark in self.marks if mark in full_text}

        def hide(text: str) -> str:
            for letter, mark in marks.items():
                text = text.replace(mark, letter)
            return text

        if not marks:
            return list(messages), schemas, marks
        return [map_texts(message, hide) for message in messages], tuple(map(hide, schemas)), marks

    def encode_shown(self, text: str, marks: Mapping[str, str], *, inside: bool = False) -> tuple[int, ...]:
        """Its tokens: the template's own marks are special tokens, those that messages hold are only text. inside: it
        stands behind other text."""
        encode = self.encode_inside if inside else self.encode
        if not marks:
            return encode(text)
        first, *rest = re.split(f"([{''.join(marks)}])", text)
        pieces = (self.text_ids(marks[piece]) if piece in marks else self.encode_inside(piece) for piece in rest)
        return tuple(chain(encode(first), *pieces))
