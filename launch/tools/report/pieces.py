"""The texts of tokens, from a tokenizer.json: read by `tokenizers`, which runs nothing of its author's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@cache
def _bytes_of_letters() -> Mapping[str, int]:
    """The letter that byte-level tokenizers write for each byte: printable ones for themselves, others from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unprintable = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(unprintable)}


class Pieces:
    """By token id the bytes that it stands for. A character may begin in one token and end in the next."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError where the file is none, or too damaged to read."""
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain `Exception`
            raise ValueError(f"{path.name}: {error}") from error
        text = self._tokenizer.to_str()
        self._byte_level = '"ByteLevel"' in text
        self.size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self._added = {number: str(token) for number, token in _added_tokens(self._tokenizer).items()}

    def piece(self, token: int) -> bytes | None:
        """None for an id that the tokenizer does not have."""
        if token in self._added:
            return self._added[token].encode("utf-8", "replace")
        text = self._tokenizer.id_to_token(token) if 0 <= token < 2**31 else None
        if text is None:
            return None
        if self._byte_level:
            letters = _bytes_of_letters()
            return b"".join(bytes([letters[letter]]) if letter in letters else letter.encode() for letter in text)
        if match := BYTE.fullmatch(text):
            return bytes([int(match[1], 16)])
        return text.replace("\u2581", " ").encode("utf-8", "replace")

    def table(self, tokens: Iterable[int]) -> list[list[Any]]:
        """[[ids], [texts]]: each byte of a text is the letter with its number."""
        pairs = [(token, piece) for token in sorted(set(tokens)) if (piece := self.piece(token)) is not None]
        return [[token for token, _ in pairs], [piece.decode("latin-1") for _, piece in pairs]]


def _added_tokens(tokenizer: Any) -> dict[int, Any]:
    return {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
