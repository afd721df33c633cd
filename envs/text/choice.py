"""Which option of a multiple-choice question a text names, and which of a few words it ends on.

Such words are yes or no, true or false, support or counter. What a clause denies or supposes is not chosen, and two
claims that disagree choose nothing. Linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from envs.text.words import last_boxed_span, last_boxed_spans, normalize_answer

MAX_CLAIMS = 16  # of one kind that are read, from the end
LAST_WORDS = 400  # characters of a line that are read as a sentence, or as what stands around a letter

_W = r"[^\W_\u2e80-\u9fff\uac00-\ud7af]"  # of a word that a letter would belong to: Chinese leaves no space
_BEFORE, _BEHIND = rf"(?<!{_W})(?<!{_W}')(?<!{_W}_)", rf"(?!_?{_W}|'\w|-\d)"
_FONT = r"\\(?:text|math)(?:bf|it|rm|sf|tt)?\s?\{|\\(?:bf|it|rm|sf)(?![A-Za-z])\s?"
_LETTER = rf"(?:{_FONT})?[(\[]?([A-Z]){_BEHIND}"
_LOWER = r"[(\[]?([a-z])[)\]]?(?=[.*\s]{0,6}(?:\n|$))"  # only where nothing stands behind it: `a` is an article too
_LEAD = re.compile(
    r"(?:\b(?:answer|solution|(?:correct|right|best|final)\s(?:option|choice|one))"
    r"(?:[*_\"'`]{0,3}\s{0,3}[:=]|\s{1,3}is\s{0,3}:?|\s{1,3}would\sbe)"
    r"|\b(?:choose|chose|pick|select|go\swith|going\swith|opt\sfor))[\s*_$\"'`]{0,6}(?:option\s{1,3}|choice\s{1,3})?",
    re.IGNORECASE,
)
_CLAIMED = re.compile(f"{_LETTER}|{_LOWER}")
_BOLD = re.compile(r"\*\*\s{0,3}[(\[]?([A-Z])[)\]]?[.:)]?\s{0,3}\*\*")
_BOLD_TEXT = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_ALONE = re.compile(rf"{_BEFORE}([A-Z]){_BEHIND}")
_ARTICLE = re.compile(r"\s+(?!(?:is|was|or|and|nor|are|were|cannot|because|since|but)\b)[a-z]")
_MARK = r"[\s*()\[\]'\"`_.:]{0,6}"
_AND = (
    r"(?:(?i:and/or|or|and|then|vs|versus|maybe|perhaps|possibly|alternatively)(?!\w)|[/,&+|\\\u2192]"
    r"|;(?=[A-Z])|\)\s?\()"
)
_OR = re.compile(rf"(?:(?:{_MARK}{_AND}){{1,3}}{_MARK}|[ ]{{1,3}})([A-Z]){_BEHIND}")
_JOINED = re.compile(r"^(?:or|and|/)\s+")
_WHOLE = re.compile(
    r"(?i:(?:option|choice|answer)[\s:]{1,3})?[(\[]?([A-Za-z])[)\]]?((?:\s{0,3}[.:,(\[)]|\s{1,3}[-\u2013\u2014/&+]|/).*|)",
    re.DOTALL,
)
_MARKS = re.compile(rf"{_FONT}|\\[ ,;!]|[*{{}}$]")
_WIDE = str.maketrans({chr(0xFEE0 + ord(c)): c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz():.,"})
_CLAUSE = re.compile(
    r"[.,;:!?\n()\[\]\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]|(?<!\ball )(?<!\banything )(?<!\beverything )\bbut\b"
    r"|\b(?:since|because|as|so|while|hence|thus|therefore|instead|rather)\b",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"\b(?:not|no|none|never|neither|nor|cannot|wrong|false|incorrect|untrue|unlikely|impossible|except|but|if|unless|out"
    r"|whether|(?:exclud|eliminat|reject|discard|dismiss)\w{1,4}|than|fails?)\b|n['\u2019]t\b"
    r"|[\u4e0d\u975e\u6ca1\u9519]",  # Chinese: not, no, none, wrong
    re.IGNORECASE,
)
_TURNS = re.compile(
    r"\b(?:wait|actually|hmm|sorry|correction|instead|rather|no|second thought|mistake)\b", re.IGNORECASE
)

TAIL = 4_000  # characters that are read: what comes before is reasoning
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")
_TAG = re.compile(r"<answer>([^<]{0,80})</answer>", re.IGNORECASE)
_WORD = r"(?!true|false|untrue|support|counter)\w{1,12}"  # no other word of the same table
_NOT = rf"(?:\bnot|n't)\s(?:{_WORD}\s){{0,2}}"
_DENIED = re.compile(r"\b(?:not|no|none|never|neither|nor|cannot|if|unless|whether)\b|n['\u2019]t\b", re.IGNORECASE)


def find_named(content: str, options: Mapping[str, str]) -> str | None:
    """The option that a short text names: `B`, `(b)`, `B. Paris`, or `Paris` where just one option says so.

    None where what stands behind the letter names another one, as in `B: or A` and `B. Rome`, where Rome is A.
    """
    content = content.translate(_WIDE).strip()
    plain = _MARKS.sub("", content[:LAST_WORDS]).strip()
    keys = {normalize_answer(content), normalize_answer(plain)} - {""}
    same = [letter for letter, text in options.items() if normalize_answer(text) in keys]
    lettered = _WHOLE.fullmatch(plain)
    if lettered is None or (letter := lettered[1].upper()) not in options or (same and lettered[2].strip(" .:)],")):
        return same[0] if len(same) == 1 else None
    if normalize_answer(lettered[2]) != normalize_answer(options[letter]) and _denies(lettered[0], *lettered.span(1)):
        return None
    behind = normalize_answer(lettered[2].strip(" -\u2013\u2014"))
    if not behind or behind == normalize_answer(options[letter]):
        return letter
    other_letters = {match[1] for match in _stated_letters(lettered[2], 0, len(lettered[2]), options)} - {letter}
    words = f" {behind} "
    texts = (normalize_answer(text) for other, text in options.items() if other != letter)
    longer = normalize_answer(options[letter])
    return None if other_letters or any(t and f" {t} " in words and t not in longer for t in texts) else letter


def find_final_letter(text: str, options: Mapping[str, str]) -> tuple[str | None, tuple[int, int] | None]:
    """The letter that a text ends on, and where it stands.

    The first of these that is there decides, and says nothing when it names no option, or two: the last box, the last
    "answer is B" (or what B says), the last **B**, the only letter in the last sentence, the last sentence or its last
    bold words where they are what just one option says. A clause that denies a letter (`not B`, `B is wrong`) or
    supposes it (`if B`) does not name it; another letter behind the claim, with a word such as "wait", undoes it.
    """
    text = text.translate(_WIDE)
    boxes = last_boxed_spans(text)
    if boxes:
        boxed = {find_named(text[start:end], options) for start, end in boxes}
        return boxed.pop() if len(boxed) == 1 else None, boxes[-1]
    claims, bolds = _claimed_options(text, options), _bold_options(text, options)
    if claims or bolds:
        letter, at = (claims or bolds)[-1]
        later = bolds[-1] if bolds and bolds[-1][1] > at else (letter, at)
        hedged = later[0] != letter or _is_undone(text, letter, at[1], options)
        hedged = hedged or any(_names_another(text, of, end, options) for of, (_, end) in (claims or bolds)[-2:])
        return None if hedged else letter, at
    start, end = _last_sentence(text, options)
    alone = list(_stated_letters(text, start, end, options))
    if len({match[1] for match in alone}) == 1:
        return alone[-1][1], alone[-1].span(1)
    bold = [match for match in _BOLD_TEXT.finditer(text, start, end) if not _denies(text, match.start(), match.end())]
    for low, high in [match.span(1) for match in bold[-1:]] + [(start, end)]:
        option = find_named(text[low:high].strip(" *"), options)
        if option is not None:
            return option, (low, high)
    return None, None


Claim = tuple[str, tuple[int, int]]  # a letter and where it is named


def _claimed_options(text: str, options: Mapping[str, str]) -> list[Claim]:
    """What "the answer is" names, the last few: a letter, or the words of just one option."""
    claims: list[Claim] = []
    for lead in list(_LEAD.finditer(text))[-MAX_CLAIMS:]:
        match = _CLAIMED.match(text, lead.end())
        letter = str(match[1] or match[2]).upper() if match else ""
        if match and letter in options and not _is_article(match):
            at = match.span(1) if match[1] else match.span(2)
            if not _denies(text, *at, own=options[letter]):
                claims.append((letter, at))
            continue
        stop = text.find("\n", lead.end(), lead.end() + LAST_WORDS)
        stop = min(len(text), lead.end() + LAST_WORDS) if stop < 0 else stop
        words = normalize_answer(text[lead.end() : stop])
        for sentence in (words, normalize_answer(text[lead.end() : stop].partition(". ")[0])):
            same = [of for of, option in options.items() if sentence and normalize_answer(option) == sentence]
            if len(same) == 1:
                if not _denies(text, lead.end(), stop):
                    claims.append((same[0], (lead.end(), stop)))
                break
    return claims


def _bold_options(text: str, options: Mapping[str, str]) -> list[Claim]:
    bolds = [match for match in _BOLD.finditer(text) if match[1] in options][-MAX_CLAIMS:]
    return [(match[1], match.span(1)) for match in bolds if not _denies(text, *match.span(1), own=options[match[1]])]


def _denies(text: str, start: int, end: int, own: str = "") -> bool:
    """Whether the clause around a place denies or supposes what stands there. own: the words of the option itself,
    which may stand behind its letter and deny nothing: `D: None of the above`."""
    begin, stop = max(0, start - LAST_WORDS), min(len(text), end + LAST_WORDS)
    for mark in _CLAUSE.finditer(text, begin, start):
        begin = mark.end()
    behind = end
    while behind < stop and text[behind] in ".)]:* ":  # of `B. Paris is wrong`, and of a letter in bold
        behind += 1
    if own and text[behind : behind + len(own)].casefold() == own.casefold():
        end = behind = behind + len(own)
    after = _CLAUSE.search(text, behind, stop)
    stop = after.start() if after else stop
    line = text.find("\n", end, behind)
    if text.startswith("?", end):
        return True
    return bool(_DENIES.search(text, begin, start) or _DENIES.search(text, end, line if line >= 0 else stop))


def _is_undone(text: str, letter: str, end: int, options: Mapping[str, str]) -> bool:
    """Whether another letter follows with a word that takes the claim back, or alone in the last line."""
    tail = text[end:]
    last = _WHOLE.fullmatch(_MARKS.sub("", tail.rpartition("\n")[2][:LAST_WORDS]).strip()) if "\n" in tail else None
    if last and not last[2].strip(" .)]") and last[1] in options and last[1] != letter:
        return True
    turned = _TURNS.search(text, end)
    return turned is not None and any(
        match[1] != letter for match in _stated_letters(text, turned.start(), turned.start() + TAIL, options)
    )


def _names_another(text: str, letter: str, end: int, options: Mapping[str, str]) -> bool:
    """Whether another option follows, as in `A or B`, or the words of another one, as in `A or Rome` and `(B) Rome`."""
    match = _OR.match(text, end)
    if match and match[1] in options and match[1] != letter and not _is_article(match):
        return not _denies(text, *match.span(1))
    line = text[end : end + LAST_WORDS].partition("\n")[0].strip(" .:)]*")
    phrases = {normalize_answer(_JOINED.sub("", part)) for part in (line, *re.split(r"[.,;(]", line)[:2])}
    option_text = normalize_answer(options[letter])
    return any(normalize_answer(words) in phrases - {"", option_text} for of, words in options.items() if of != letter)


def _last_sentence(text: str, options: Mapping[str, str]) -> tuple[int, int]:
    end = len(text.rstrip())
    start = max(text.rfind("\n", 0, end) + 1, end - LAST_WORDS)
    for mark in (". ", "! ", "? ", "\u3002"):
        stop = text.rfind(mark, start, end - 1)
        if text[start : max(start, stop)].strip("*([ ") not in options:  # the line `B. Paris` is one sentence
            start = max(start, stop + 1)
    return start, end


def _stated_letters(text: str, start: int, end: int, options: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """Letters of options that stand alone and are not denied; an A before a small word is an article."""
    for match in _ALONE.finditer(text, start, end):
        if match[1] in options and not _is_article(match) and not _denies(text, *match.span(1), own=options[match[1]]):
            yield match


def _is_article(match: re.Match[str]) -> bool:
    """`A city`, `I think`."""
    return match[1] in ("A", "I") and _ARTICLE.match(match.string, match.end(1)) is not None


@dataclass(frozen=True, slots=True)
class Words:
    """By the word that is meant, what says it. Where two begin at the same place the first of the table counts."""

    forms: Mapping[str, str]

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<{word}>{form})" for word, form in self.forms.items()), re.IGNORECASE)


END = r"(?=\W{0,3}(?:[.,;:!?*\"')\n]|$))"  # `no.` answers, `no evidence` does not
YES_NO = Words({"yes": r"\byes\b", "no": rf"\bno\b{END}"})
TRUE_FALSE = Words({"false": rf"{_NOT}true\b|\bfalse\b|\buntrue\b", "true": rf"{_NOT}(?:false|untrue)\b|\btrue\b"})
STANCE = Words(
    {
        "counter": rf"{_NOT}support\w{{0,3}}\b|\bcounter\w{{0,3}}\b",
        "support": rf"{_NOT}counter\w{{0,3}}\b|\bsupport\w{{0,3}}\b",
    }
)


def find_stated(text: str, words: Words) -> tuple[str, tuple[int, int]] | None:
    """The word that a text says, and where.

    The first of these that is there decides, and says nothing where it says two: the last answer tag, the last box, the
    last sentence in which one of the words stands.
    """
    pattern = words.pattern
    tags = list(_TAG.finditer(text[-TAIL:]))
    box = last_boxed_span(text)
    if tags or box:
        offset = max(0, len(text) - TAIL)
        start, end = (offset + tags[-1].start(1), offset + tags[-1].end(1)) if tags else box or (0, 0)
        return _find_only(pattern, text, start, end)
    begin = max(0, len(text) - TAIL)
    for sentence in reversed(list(_SENTENCE.finditer(text, begin))):
        if pattern.search(text, sentence.start(), sentence.end()):
            return _find_only(pattern, text, sentence.start(), sentence.end())
    return None


def _find_only(pattern: re.Pattern[str], text: str, start: int, end: int) -> tuple[str, tuple[int, int]] | None:
    """The only word there. None where two are, or where its clause denies it: `not yes` is no `no`."""
    matches = list(pattern.finditer(text, start, end))
    if len({match.lastgroup for match in matches}) != 1:
        return None
    for match in matches:
        begin = start
        for mark in _CLAUSE.finditer(text, max(start, match.start() - LAST_WORDS), match.start()):
            begin = mark.end()
        if _DENIED.search(text, begin, match.start()):
            return None
    return str(matches[-1].lastgroup), matches[-1].span()
