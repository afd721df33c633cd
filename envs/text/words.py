"""What short texts say: an answer as words, the last box, the verdict that SWiRL's judge ends on."""

from __future__ import annotations

import re
import string

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_STEP = re.compile(r"\b(?:GOOD|BAD)\b")
_OUTCOME = re.compile(r"\b(?:YES|NO)\b")
# A command with its opening brace, any other escape (so that `\{` is no brace), or a brace.
_TOKEN = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s{0,8}\{?|\\.|[{}]", re.DOTALL)
MAX_JOIN = 32  # characters between two boxes of one answer
_JOIN = re.compile(r"[\s$,;]*(?:(?:\\text\s?\{\s?)?(?:and|or)\s?\}?)?[\s$,;]*")
THOUGHT_OPEN, THOUGHT_CLOSE = "<think>", "</think>"
THOUGHTS = ((THOUGHT_OPEN, THOUGHT_CLOSE), ("[THINK]", "[/THINK]"))  # the latter Magistral's
_COMMAND = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without a, an and the, single spaces: `The  Cat!` gives `cat`."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def without_marks(text: str) -> str:
    """Lower case, without ASCII punctuation, single spaces: `The  Cat!` gives `the cat`."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def step_verdict(judgement: str) -> str | None:
    """The last whole word GOOD or BAD; None without one."""
    return _last_match(_STEP, judgement)


def outcome_verdict(judgement: str) -> str | None:
    """The last whole word YES or NO; None without one."""
    return _last_match(_OUTCOME, judgement)


def _last_match(words: re.Pattern[str], text: str) -> str | None:
    matches: list[str] = words.findall(text)
    return matches[-1] if matches else None


def answer_start(text: str) -> int:
    """Where the answer begins behind a thought: after the last `</think>`; the end of a text that never closes it."""
    ends = (text.rfind(closing) + len(closing) for _, closing in THOUGHTS if closing in text)
    never = len(text) if text.lstrip().startswith(tuple(opening for opening, _ in THOUGHTS)) else 0
    return max(ends, default=never)


def without_thought(text: str) -> str:
    """With spaces in the place of a thought: every character of the answer stays where it was."""
    start = answer_start(text)
    return " " * start + text[start:]


def last_boxed_span(text: str) -> tuple[int, int] | None:
    """Where the content of the last `\\boxed{...}` stands, braces matched. None without a box, and when the last one is
    never closed: nothing is guessed. One pass, linear.

    A box inside another is part of that one, and one inside a thought is no answer. `\\boxed X` without braces holds up
    to the next `$` of its line, else up to the next space.
    """
    spans = last_boxed_spans(text)
    return spans[-1] if spans else None


def last_boxed_spans(text: str) -> list[tuple[int, int]]:
    """The last box, and the boxes that it is joined to: `\\boxed{2}$ and $\\boxed{3}` are one answer."""
    begin = _COMMAND.search(text, answer_start(text))
    if begin is None:
        return []
    braces: list[tuple[int, int]] = []  # where each open box, and its content, starts; -1 for another brace
    open_boxes = 0  # of these, how many are boxes
    last_start = -1  # of the last box that is not inside a closed one
    run: list[tuple[int, int]] = []
    bare = -1  # where the last box without braces begins: it is read once, for each may reach to the end of the text
    for token in _TOKEN.finditer(text, begin.start()):
        kind = token.group()
        if kind == "{":
            braces.append((-1, -1))
        elif kind == "}":
            opening, start = braces.pop() if braces else (-1, -1)
            if start >= 0:
                open_boxes -= 1
                while run and run[-1][0] > start:  # inside this one
                    run.pop()
                if run and (opening - run[-1][1] > MAX_JOIN or not _JOIN.fullmatch(text, run[-1][1] + 1, opening)):
                    run = []
                run.append((start, token.start()))
                last_start = start
        elif _COMMAND.match(kind):
            last_start = token.end()
            if kind.endswith("{"):
                braces.append((token.start(), token.end()))
                open_boxes += 1
            elif open_boxes == 0:
                bare = token.end()
    if bare == last_start:
        span = _unbraced_box_span(text, bare)
        run = [span] if span is not None else []
    return run if run and run[-1][0] == last_start else []


def last_boxed(text: str) -> str | None:
    """The content of the last box, stripped; of a box that holds nothing but a box, the inner content. Boxes joined by
    a comma, `and` or `or` are one list."""
    spans = last_boxed_spans(text)
    return ", ".join(unbox(text[start:end]) for start, end in spans) if spans else None


def unbox(content: str) -> str:
    """Stripped; of a content that is nothing but a box, the inner content."""
    content = content.strip()
    for _ in range(4):
        inner = last_boxed_span(content) if _COMMAND.match(content) and content.endswith("}") else None
        if inner is None or inner[1] != len(content) - 1 or "{" in content[: inner[0] - 1]:
            break
        content = content[inner[0] : inner[1]].strip()
    return content


def _unbraced_box_span(text: str, start: int) -> tuple[int, int] | None:
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    end = text.find("$", start, line_end)
    if end < 0:
        while start < line_end and text[start].isspace():
            start += 1
        end = start
        while end < line_end and not text[end].isspace():
            end += 1
    return (start, end) if end > start else None
