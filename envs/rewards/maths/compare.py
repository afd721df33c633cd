"""Are two mathematical answers the same? Numbers exactly, lists and sets and intervals and matrices by what they hold.

`decide` is pure, quick and bounded: it says True, False, or None where algebra is needed. `equivalent` then asks
SymPy, without a deadline: text that a model wrote goes there only inside `envs.rewards.maths.grader`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from envs.rewards.maths.counters import rename_counter
from envs.rewards.maths.dates import same_moment
from envs.rewards.maths.form import is_copied, is_reordered, is_rewritten, is_solved
from envs.rewards.maths.means import ALGEBRA, PLAIN, Means
from envs.rewards.maths.measure import ratio
from envs.rewards.maths.numerals import is_in_asked_base, same_based
from envs.rewards.maths.quantity import quantity
from envs.rewards.maths.structure import (
    REALS,
    Collection,
    Relation,
    as_tuple,
    collection,
    is_variable,
    named_interval,
    named_matrix,
    parse_labelled,
    relation,
    spans,
    write_cases,
)
from envs.rewards.maths.text import clean, flat, is_prose, split_name
from envs.rewards.maths.typed import split_modulus
from envs.rewards.maths.units import infer_unit, same_unit, split_unit
from envs.rewards.maths.verdict import Verdict, all_of, any_of, match_members
from envs.rewards.maths.words import choice, extract_statement, same_choices, same_words

MAX_ANSWER = 2000  # characters; a longer answer is right only when it is the gold, letter by letter
MAX_ELEMENTS = 64
MAX_DEPTH = 8

_SETS = re.compile(r"\\(?:cup|cap|setminus|mathbb|le|ge|ne)(?![a-zA-Z])|[<>]")
# The left side of `AB = 5`, `x + y = 7`, `\text{Area} = 12`: it says what is asked. `2x = 4` does not.
_LABEL = re.compile(
    r"(?:[A-Za-z]|\\(?:text|angle|triangle|overline|vec|theta|alpha|beta|phi|lambda|mu|sigma|max|min)(?![a-zA-Z])"
    r"|'|(?<=[A-Za-z])\^\s?\{?\s?-\s?1\s?\}?(?=\s?(?:\(|$))"  # f'(x), f^{-1}(x)
    r"|\\frac(?=\s?\{)|_\s?(?:[0-9]|\{\s?[0-9]{1,3}\s?\})|[\s+(),|{}_:/])+"
)
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]{1,9},(?:[0-9]{2}|[0-9]{4,9})(?![0-9])[^,]*$")  # 1,2 is a list, 1,222 1222
_DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+(?![0-9])[^,]*$")
_NATURAL = re.compile(r"\\log(?![a-zA-Z])(?!\s?_)\s?")  # the only logarithm, where the key's is natural
_ARGUMENT = re.compile(r"([A-Za-z])\(([a-z])\)")  # of f(t) = t^2, which is f(x) = x^2
_OTHERWISE = re.compile(r"[^0-9]{0,40}\b(?:otherwise|else)[^0-9A-Za-z\\]{0,9}$")
_UNIT = re.compile(r"(?<![A-Za-z])([ijk])(?![A-Za-z])")
_COMPONENTS = re.compile(r"(?:[^ijk]{0,40}[ijk](?![A-Za-z])){2,3}")  # i + 2j + 3k
_EITHER = re.compile(r"\bor\b|\u6216|\\(?:lor|vee)(?![a-zA-Z])|\|")  # `B or D` chooses neither
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3}|\\(?:angle|triangle|max|min)")  # \alpha is a name as x is
_OTHER = re.compile(r"max|min|'|\\frac\{d[^{}]*\}\{d[^{}]*\}")  # what makes another thing of a name
_DERIVED = re.compile(r"\\frac\{d([a-z])\}\{d[xt]\}")  # y'


def decide(given: str, golds: Sequence[str], question: str = "") -> Verdict:
    """Whether `given` is one of `golds`; None where only algebra can tell. Raises nothing.

    What stands in `question` already is none of them where a number was to be converted, or where only algebra would
    find the key in it.
    """
    return any_of(_decide(given, gold, question) for gold in golds)


def _decide(given: str, gold: str, question: str) -> Verdict:
    verdict = _compare(given, gold, PLAIN)
    if verdict is False and question and len(given) <= MAX_ANSWER:
        return is_in_asked_base(_value(clean(given)), clean(gold), question)
    if verdict is False or not question or given.strip() == gold.strip() or not is_copied(given, question):
        return verdict
    if verdict:
        return not is_rewritten(given, gold, question)
    return None if is_reordered(given, gold) else False


def equivalent(given: str, gold: str) -> bool:
    """Whether `given` answers a question whose answer is `gold`. Not symmetric: `x = 5` is given for 5, `5 cm` for 5.

    May take for ever, or all memory, on a hostile text.
    """
    return bool(_compare(given, gold, ALGEBRA))


def read(gold: str) -> bool:
    """True, after all the work that a comparison has with `gold` alone. May take for ever, as `equivalent` may."""
    if len(gold) <= MAX_ANSWER:
        _read(clean(gold), MAX_DEPTH)
    return True


def _read(text: str, depth: int) -> None:
    found, held = relation(text), collection(text)
    if found is None and (held is None or depth == 0):
        ALGEBRA.equal("1", split_unit(text)[0])
        return
    for part in found.sides if found is not None else held.elements if held is not None else ():
        if part != text:
            _read(part, depth - 1)


def _compare(given: str, gold: str, means: Means) -> Verdict:
    if given.strip() == gold.strip():
        return bool(gold.strip())
    if len(given) > MAX_ANSWER or len(gold) > MAX_ANSWER:
        return False
    either = _EITHER.search(given) is not None
    given, gold = clean(given), clean(gold)
    if not given or not gold:
        return False
    if _DECIMAL_COMMA.match(given) and _DECIMAL.match(gold):
        given = given.replace(",", ".")
    if gold[-1:].isalpha() or gold[-1:] in ")]}.:" or gold[:1] in "([\\ABCDEFGHIJ":
        picked, key = choice(given), choice(gold)
        if picked is not None and key is not None:
            return picked[0] == key[0]
        several = same_choices(given, gold)
        if several is not None:
            return several and not either
    if is_prose(given) and is_prose(gold) and same_words(given, gold):
        return ratio(split_unit(given)[1], split_unit(gold)[1]) in (None, 1)  # MHz and mHz are the same letters
    if r"\ln" in gold and r"\log" not in gold and r"\ln" not in given:
        given = _NATURAL.sub(r"\\ln ", given)
    if r"\cap" in given and "," in gold and r"\cap" not in gold and _SETS.search(gold):  # a > 0 and b < 0
        given = given.replace(r" \cap ", ", ")
    given, gold = rename_counter(given, gold)
    (given, modulus), (gold, asked) = split_modulus(given), split_modulus(gold)
    if modulus and modulus != asked and (asked or not (given.isdecimal() and int(given) < int(modulus))):
        return False
    verdict = same_moment(given, gold)
    if verdict is None:
        verdict = same_based(_value(given), _value(gold))
    if verdict is not None:
        return verdict
    cases = r"{cases}" in given or r"{cases}" in gold
    given = write_cases(given) if cases else given
    if cases or parse_labelled(given) is not None or parse_labelled(gold) is not None:
        return _same(given, gold, means, MAX_DEPTH)
    verdict = _statement(given, gold, means, MAX_DEPTH)
    said = verdict is False and (is_prose(given) or given[:3].lower() == "it ") and not extract_statement(gold)
    what = extract_statement(given) if said else ""
    return _compare(what, gold, means) if what else verdict


def _statement(given: str, gold: str, means: Means, depth: int) -> Verdict:
    """Two texts that may be equations, inequalities or approximations; `x \\in S` is S."""
    ours, theirs = relation(given), relation(gold)
    if theirs is not None and theirs.kind == r"\approx":
        return any_of(_statement(given, side, means, depth) for side in _values(theirs))
    if ours is not None and ours.kind == r"\approx":
        return _compare_approximation(ours, gold, means, depth)
    if "<" in (ours and ours.kind, theirs and theirs.kind):
        return _same_region(given, gold, means, depth)
    if ours is not None or theirs is not None:
        return _same_equation((given, ours), (gold, theirs), means, depth)
    (name, value), (key, target) = split_name(given), split_name(gold)
    if name == key or not (name and key):
        given, gold = value, target
    return _same(given, gold, means, depth)


def _values(found: Relation) -> tuple[str, ...]:
    """The sides of an approximation without what stands first to be named, `x` or nothing."""
    return tuple(side for at, side in enumerate(found.sides) if side and not (at == 0 and is_variable(side)))


def _compare_approximation(given: Relation, gold: str, means: Means, depth: int) -> Verdict:
    """`\\sqrt2 \\approx 1.414` is given for the one and for the other side, if the second is the first one rounded."""
    sides = _values(given)
    pairs = zip(sides, sides[1:], given.operators[-len(sides) + 1 :], strict=False)
    right = (
        _same(other, side, means, depth - 1) if operator == "=" else means.rounds(side, other)
        for side, other, operator in pairs
    )
    return all_of([any_of(_same(side, _value(gold), means, depth - 1) for side in sides), *right])


def _value(text: str) -> str:
    return split_name(text)[1]


def _same_equation(
    given: tuple[str, Relation | None], gold: tuple[str, Relation | None], means: Means, depth: int
) -> Verdict:
    """`x = 5` and `5 = x` are 5 with a name; `2x = 4` is x = 2 scaled, which only algebra sees."""
    name, values = _named_values(*given)
    key, targets = _named_values(*gold)
    ours, theirs = _ARGUMENT.fullmatch(name), _ARGUMENT.fullmatch(key)
    if ours is not None and theirs is not None and ours[1] == theirs[1] and ours[2] != theirs[2]:
        argument = re.compile(rf"(?<![A-Za-z]){ours[2]}(?![A-Za-z])")
        if not any(re.search(rf"(?<![A-Za-z]){theirs[2]}(?![A-Za-z])", value) for value in values):
            name, values = key, tuple(argument.sub(theirs[2], value) for value in values)
    if (ours is None) is not (theirs is None) and (ours[1] if ours else name) == (theirs[1] if theirs else key):
        name = key  # y(t) and y
    if name and key:
        name, key = (_DERIVED.sub(r"\1'", side) for side in (name, key))
    if name and key and _OTHER.findall(name) != _OTHER.findall(key):
        return False
    if given[1] is None or gold[1] is None:
        if gold[1] is not None and not key:
            return False
        return _same_chain(values, targets, means, depth)
    if name and key and (name == key or _WORD.search(name) or _WORD.search(key)):
        return _same_chain(values, targets, means, depth)
    if (
        len(given[1].sides) != 2
        or len(gold[1].sides) != 2
        or (is_solved(gold[0]) and name != key and not is_solved(given[0]))
    ):
        return False
    return flat(given[0]) == flat(gold[0]) or means.equal(given[0], gold[0])


def _same_chain(values: Sequence[str], targets: Sequence[str], means: Means, depth: int) -> Verdict:
    """`2 + 3 = 5` for 5: every side is right, and one of them is worked out."""
    loose = replace(means, same=means.equal)
    right = [any_of(_same(value, target, loose, depth) for target in targets) for value in values]
    return all_of([*right, any_of(_same(value, target, means, depth) for target in targets for value in values)])


def _named_values(text: str, found: Relation | None) -> tuple[str, tuple[str, ...]]:
    if found is None:
        return "", (_value(text),)
    sides = found.sides
    if len(sides) == 2 and is_variable(sides[1]) and not _LABEL.fullmatch(sides[0]):
        sides = sides[::-1]
    if _LABEL.fullmatch(sides[0]):
        return flat(sides[0]), sides[1:]
    return "", sides


def _same_region(given: str, gold: str, means: Means, depth: int) -> Verdict:
    """Inequalities, each against another one, an interval or a union."""
    if is_solved(gold) and not is_solved(given):
        return False
    ours, theirs = named_interval(given), named_interval(gold)
    if ours is not None and theirs is not None and ours[0] != theirs[0]:
        return False
    held, asked = spans(given), spans(gold)
    if held is not None and asked is not None:
        return held == asked
    if ours is not None and theirs is not None:
        return _same_collection(ours[1], theirs[1], means, depth - 1)
    for simple, text in ((ours, gold), (theirs, given)):
        other = collection(_value(text)) if simple is not None else None
        if simple is not None and not _SETS.search(text):
            if other is None:
                return False
            pair = (simple[1], other) if simple is ours else (other, simple[1])
            return _same_collection(*pair, means, depth - 1)
    return means.same(given, gold)


def _same(given: str, gold: str, means: Means, depth: int) -> Verdict:
    a, b = flat(given), flat(gold)
    if a == b:
        return bool(a)
    if depth <= 0:
        return False
    if quantity(given) is None or quantity(gold) is None:  # 1,000 is a number, not a list
        verdict = _same_sets(given, gold)
        if verdict is not None:
            return verdict
        ours, theirs = collection(given), collection(gold)
        if ours is None and theirs is not None and len(theirs.elements) in (2, 3) and _is_components(given):
            ours = collection(_UNIT.sub(r"\\unitvector{\1}", given))
        if ours is not None and theirs is None and ours.kind.startswith("matrix"):
            theirs = named_matrix(gold, ours.kind)
        elif theirs is not None and ours is None and theirs.kind.startswith("matrix"):
            ours = named_matrix(given, theirs.kind)
        if ours is not None and theirs is not None:
            return _same_collection(ours, theirs, means, depth - 1)
        for mine, text, other in ((ours, given, gold), (theirs, gold, given)):
            if mine is not None and mine.kind == "parts":
                return False
            inside = _inside(mine)
            if inside is not None and (mine is None or mine.kind != "set" or depth == MAX_DEPTH):
                pair = (inside, other) if text is given else (other, inside)
                return _same(*pair, means, depth - (inside[:1] not in "(["))
            if mine is not None and not mine.kind.startswith("matrix") and quantity(other) is not None:
                return False
        return _same_but_units(given, gold, means, depth)
    return means.same(given, gold)


def _is_components(text: str) -> bool:
    units = _UNIT.findall(text)
    return _COMPONENTS.fullmatch(text) is not None and len(set(units)) == len(units)


def _same_sets(given: str, gold: str) -> Verdict:
    """Two sets of numbers, one of them a union or all reals; None where they are anything else."""
    if not any(mark in text for mark in (r"\cup", REALS) for text in (given, gold)):
        return None
    ours, theirs = spans(given), spans(gold)
    return None if ours is None or theirs is None else ours == theirs


def _inside(held: Collection | None) -> str | None:
    """What `(5)`, `\\{5\\}` and `3:2` are where a single thing is expected."""
    if held is None or (len(held.elements) == 1 and held.kind not in ("()", "set")):
        return None
    if held.kind == "ratio" and len(held.elements) == 2:
        return rf"\frac{{{held.elements[0]}}}{{{held.elements[1]}}}"
    return held.elements[0] if len(held.elements) == 1 else None


def _same_but_units(given: str, gold: str, means: Means, depth: int) -> Verdict:
    (value, unit), (target, asked) = split_unit(given), split_unit(gold)
    for body, mark, angle, other in ((value, unit, target, asked), (target, asked, value, unit)):
        if mark == "deg" and other in ("", "rad") and r"\pi" in angle:
            turned = rf"\frac{{({body})\pi}}{{180}}"
            return means.same(turned, target) if body is value else means.same(value, turned)
    if unit and target.endswith(f" {unit}"):  # a bare `5 m` is a product, unless the other one says that it is metres
        target = target.removesuffix(unit)
    elif asked and value.endswith(f" {asked}"):
        value = value.removesuffix(asked)
    elif unit and not asked and infer_unit(unit, gold) != gold:
        return _same(given, infer_unit(unit, gold), means, depth - 1)
    elif asked and not unit and infer_unit(asked, given) != given:
        return _same(infer_unit(asked, given), gold, means, depth - 1)
    if not unit and not asked:
        return means.same(given, gold)
    return same_unit(unit, asked) and _same(value.strip(), target.strip(), means, depth - 1)


def _same_collection(given: Collection, gold: Collection, means: Means, depth: int) -> Verdict:
    given, gold = as_tuple(given, gold.kind), as_tuple(gold, given.kind)
    kinds = {given.kind, gold.kind}
    if max(len(given.elements), len(gold.elements)) > MAX_ELEMENTS or not (len(kinds) == 1 or kinds == {"set", "list"}):
        return False
    if kinds <= {"set", "union"}:
        held = [any_of(_member(each, other, means, depth) for other in gold.elements) for each in given.elements]
        asked = [any_of(_member(other, each, means, depth) for other in given.elements) for each in gold.elements]
        return all_of(held + asked)
    if len(given.elements) != len(gold.elements):
        return False
    if "cases" in kinds:
        return _pair_cases(given.elements, gold.elements, means, depth)
    if "list" in kinds:
        return _pair_members(given.elements, gold.elements, means, depth)
    pairs = list(zip(given.elements, gold.elements, strict=True))
    verdict = all_of(_same(_value(ours), _value(theirs), means, depth) for ours, theirs in pairs)
    if verdict or given.kind != "ratio":
        return verdict
    first, target = f"({given.elements[0]})", f"({gold.elements[0]})"  # 4:10 is 2:5: the cross products agree
    return all_of(means.equal(rf"{first}\cdot ({theirs})", rf"{target}\cdot ({ours})") for ours, theirs in pairs[1:])


def _pair_members(given: Sequence[str], golds: Sequence[str], means: Means, depth: int) -> Verdict:
    """Whether each given member has a gold one for itself: `1, 1, 2` is not `1, 2, 2`."""
    if _name_all(golds) and not any(map(_left, given)):  # the names that were left out are an order
        return all_of(_same(value, _named(gold), means, depth) for value, gold in zip(given, golds, strict=True))
    return match_members(given, golds, lambda one, other: _member(one, other, means, depth))


def _left(member: str) -> str:
    """What an equation names by its left side, `x_1` as `x`; "" where it names nothing."""
    found = relation(member)
    return found.sides[0].partition("_")[0].strip() if found is not None and found.operators == ("=",) else ""


def _named(member: str) -> str:
    found = relation(member)
    return found.sides[1] if found is not None else member


def _name_all(members: Sequence[str]) -> bool:
    names = [_left(member) for member in members]
    return len(names) > 1 and all(names) and len(set(names)) == len(names)


def _pair_cases(given: Sequence[str], golds: Sequence[str], means: Means, depth: int) -> Verdict:
    """The same values under the same conditions; `otherwise` is what the others leave."""
    ours, theirs = (list(zip(cells[::2], cells[1::2], strict=True)) for cells in (given, golds))

    def same(one: tuple[str, str], other: tuple[str, str]) -> Verdict:
        conditions = [_OTHERWISE.match(case[1]) is not None for case in (one, other)]
        holds = True if any(conditions) else _statement(one[1], other[1], means, depth)
        return all_of([_same(one[0], other[0], means, depth), holds])

    return match_members(sorted(ours, key=lambda case: _OTHERWISE.match(case[1]) is not None), theirs, same)


def _member(given: str, gold: str, means: Means, depth: int) -> Verdict:
    """Two members of a list: `x = 1` is 1 and is `x_1 = 1`, but not `y = 1`."""
    (name, value), (key, target) = split_name(given), split_name(gold)
    if name and key and name.partition("_")[0] != key.partition("_")[0]:
        return False
    return _statement(value, target, means, depth)
