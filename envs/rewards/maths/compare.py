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
from envs.rewards.maths.means import ALGEBRA, PLAIN, Comparison
from envs.rewards.maths.measure import conversion_factor
from envs.rewards.maths.numerals import is_in_asked_base, same_based
from envs.rewards.maths.quantity import parse_quantity
from envs.rewards.maths.structure import (
    REALS,
    Collection,
    Relation,
    as_tuple,
    is_variable,
    parse_collection,
    parse_labelled,
    parse_named_interval,
    parse_named_matrix,
    parse_relation,
    parse_spans,
    write_cases,
)
from envs.rewards.maths.text import clean, flatten, is_prose, split_name
from envs.rewards.maths.typed import split_modulus
from envs.rewards.maths.units import infer_unit, same_unit, split_unit
from envs.rewards.maths.verdict import Verdict, all_of, any_of, match_members
from envs.rewards.maths.words import extract_statement, parse_choice, same_choices, same_words

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


def decide(answer: str, golds: Sequence[str], question: str = "") -> Verdict:
    """Whether `answer` is one of `golds`; None where only algebra can tell. Raises nothing.

    A text copied from `question` is wrong where the question asks to rewrite it (a number converted, a quotient
    worked out), or where only algebra would match it.
    """
    return any_of(_decide_one(answer, gold, question) for gold in golds)


def _decide_one(answer: str, gold: str, question: str) -> Verdict:
    verdict = _same_answer(answer, gold, PLAIN)
    if verdict is False and question and len(answer) <= MAX_ANSWER:
        return is_in_asked_base(_without_name(clean(answer)), clean(gold), question)
    if verdict is False or not question or answer.strip() == gold.strip() or not is_copied(answer, question):
        return verdict
    if verdict:
        return not is_rewritten(answer, gold, question)
    return None if is_reordered(answer, gold) else False


def equivalent(answer: str, gold: str) -> bool:
    """Whether `answer` answers a question whose answer is `gold`. Not symmetric: `x = 5` is given for 5, `5 cm` for 5.

    May take for ever, or all memory, on a hostile text.
    """
    return bool(_same_answer(answer, gold, ALGEBRA))


def read_gold(gold: str) -> bool:
    """True, after all the work that a comparison has with `gold` alone. May take for ever, as `equivalent` may."""
    if len(gold) <= MAX_ANSWER:
        _read_parts(clean(gold), MAX_DEPTH)
    return True


def _read_parts(text: str, depth: int) -> None:
    claim, container = parse_relation(text), parse_collection(text)
    if claim is None and (container is None or depth == 0):
        ALGEBRA.equal("1", split_unit(text)[0])
        return
    for part in claim.sides if claim is not None else container.elements if container is not None else ():
        if part != text:
            _read_parts(part, depth - 1)


def _same_answer(answer: str, gold: str, means: Comparison) -> Verdict:
    if answer.strip() == gold.strip():
        return bool(gold.strip())
    if len(answer) > MAX_ANSWER or len(gold) > MAX_ANSWER:
        return False
    either = _EITHER.search(answer) is not None
    answer, gold = clean(answer), clean(gold)
    if not answer or not gold:
        return False
    if _DECIMAL_COMMA.match(answer) and _DECIMAL.match(gold):
        answer = answer.replace(",", ".")
    if gold[-1:].isalpha() or gold[-1:] in ")]}.:" or gold[:1] in "([\\ABCDEFGHIJ":
        option, key = parse_choice(answer), parse_choice(gold)
        if option is not None and key is not None:
            return option[0] == key[0]
        several = same_choices(answer, gold)
        if several is not None:
            return several and not either
    if is_prose(answer) and is_prose(gold) and same_words(answer, gold):
        # MHz and mHz are the same letters.
        return conversion_factor(split_unit(answer)[1], split_unit(gold)[1]) in (None, 1)
    if r"\ln" in gold and r"\log" not in gold and r"\ln" not in answer:
        answer = _NATURAL.sub(r"\\ln ", answer)
    if r"\cap" in answer and "," in gold and r"\cap" not in gold and _SETS.search(gold):  # a > 0 and b < 0
        answer = answer.replace(r" \cap ", ", ")
    answer, gold = rename_counter(answer, gold)
    (answer, modulus), (gold, key_modulus) = split_modulus(answer), split_modulus(gold)
    if modulus and modulus != key_modulus and (key_modulus or not (answer.isdecimal() and int(answer) < int(modulus))):
        return False
    verdict = same_moment(answer, gold)
    if verdict is None:
        verdict = same_based(_without_name(answer), _without_name(gold))
    if verdict is not None:
        return verdict
    cases = r"{cases}" in answer or r"{cases}" in gold
    answer = write_cases(answer) if cases else answer
    if cases or parse_labelled(answer) is not None or parse_labelled(gold) is not None:
        return _same(answer, gold, means, MAX_DEPTH)
    verdict = _same_statement(answer, gold, means, MAX_DEPTH)
    in_words = verdict is False and (is_prose(answer) or answer[:3].lower() == "it ") and not extract_statement(gold)
    statement = extract_statement(answer) if in_words else ""
    return _same_answer(statement, gold, means) if statement else verdict


def _same_statement(answer: str, gold: str, means: Comparison, depth: int) -> Verdict:
    """Two texts that may be equations, inequalities or approximations; `x \\in S` is S."""
    ours, theirs = parse_relation(answer), parse_relation(gold)
    if theirs is not None and theirs.kind == r"\approx":
        return any_of(_same_statement(answer, side, means, depth) for side in _approximated_sides(theirs))
    if ours is not None and ours.kind == r"\approx":
        return _compare_approximation(ours, gold, means, depth)
    if "<" in (ours and ours.kind, theirs and theirs.kind):
        return _same_region(answer, gold, means, depth)
    if ours is not None or theirs is not None:
        return _same_equation((answer, ours), (gold, theirs), means, depth)
    (name, value), (key, target) = split_name(answer), split_name(gold)
    if name == key or not (name and key):
        answer, gold = value, target
    return _same(answer, gold, means, depth)


def _approximated_sides(claim: Relation) -> tuple[str, ...]:
    """The sides of an approximation without what stands first to be named, `x` or nothing."""
    return tuple(side for at, side in enumerate(claim.sides) if side and not (at == 0 and is_variable(side)))


def _compare_approximation(approximation: Relation, gold: str, means: Comparison, depth: int) -> Verdict:
    """`\\sqrt2 \\approx 1.414` is given for the one and for the other side, if the second is the first one rounded."""
    sides = _approximated_sides(approximation)
    pairs = zip(sides, sides[1:], approximation.operators[-len(sides) + 1 :], strict=False)
    right = (
        _same(next_side, side, means, depth - 1) if operator == "=" else means.rounds(side, next_side)
        for side, next_side, operator in pairs
    )
    return all_of([any_of(_same(side, _without_name(gold), means, depth - 1) for side in sides), *right])


def _without_name(text: str) -> str:
    return split_name(text)[1]


def _same_equation(
    answer: tuple[str, Relation | None], gold: tuple[str, Relation | None], means: Comparison, depth: int
) -> Verdict:
    """`x = 5` and `5 = x` are 5 with a name; `2x = 4` is x = 2 scaled, which only algebra sees."""
    name, values = _split_named_values(*answer)
    key, targets = _split_named_values(*gold)
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
    if answer[1] is None or gold[1] is None:
        if gold[1] is not None and not key:
            return False
        return _same_chain(values, targets, means, depth)
    if name and key and (name == key or _WORD.search(name) or _WORD.search(key)):
        return _same_chain(values, targets, means, depth)
    if (
        len(answer[1].sides) != 2
        or len(gold[1].sides) != 2
        or (is_solved(gold[0]) and name != key and not is_solved(answer[0]))
    ):
        return False
    return flatten(answer[0]) == flatten(gold[0]) or means.equal(answer[0], gold[0])


def _same_chain(values: Sequence[str], targets: Sequence[str], means: Comparison, depth: int) -> Verdict:
    """`2 + 3 = 5` for 5: every side is right, and one of them is worked out."""
    loose = replace(means, same=means.equal)
    right = [any_of(_same(value, target, loose, depth) for target in targets) for value in values]
    return all_of([*right, any_of(_same(value, target, means, depth) for target in targets for value in values)])


def _split_named_values(text: str, claim: Relation | None) -> tuple[str, tuple[str, ...]]:
    if claim is None:
        return "", (_without_name(text),)
    sides = claim.sides
    if len(sides) == 2 and is_variable(sides[1]) and not _LABEL.fullmatch(sides[0]):
        sides = sides[::-1]
    if _LABEL.fullmatch(sides[0]):
        return flatten(sides[0]), sides[1:]
    return "", sides


def _same_region(answer: str, gold: str, means: Comparison, depth: int) -> Verdict:
    """Inequalities, each against another one, an interval or a union."""
    if is_solved(gold) and not is_solved(answer):
        return False
    ours, theirs = parse_named_interval(answer), parse_named_interval(gold)
    if ours is not None and theirs is not None and ours[0] != theirs[0]:
        return False
    answer_spans, gold_spans = parse_spans(answer), parse_spans(gold)
    if answer_spans is not None and gold_spans is not None:
        return answer_spans == gold_spans
    if ours is not None and theirs is not None:
        return _same_collection(ours[1], theirs[1], means, depth - 1)
    for simple, text in ((ours, gold), (theirs, answer)):
        container = parse_collection(_without_name(text)) if simple is not None else None
        if simple is not None and not _SETS.search(text):
            if container is None:
                return False
            pair = (simple[1], container) if simple is ours else (container, simple[1])
            return _same_collection(*pair, means, depth - 1)
    return means.same(answer, gold)


def _same(answer: str, gold: str, means: Comparison, depth: int) -> Verdict:
    a, b = flatten(answer), flatten(gold)
    if a == b:
        return bool(a)
    if depth <= 0:
        return False
    if parse_quantity(answer) is None or parse_quantity(gold) is None:  # 1,000 is a number, not a list
        verdict = _same_sets(answer, gold)
        if verdict is not None:
            return verdict
        ours, theirs = parse_collection(answer), parse_collection(gold)
        if ours is None and theirs is not None and len(theirs.elements) in (2, 3) and _is_components(answer):
            ours = parse_collection(_UNIT.sub(r"\\unitvector{\1}", answer))
        if ours is not None and theirs is None and ours.kind.startswith("matrix"):
            theirs = parse_named_matrix(gold, ours.kind)
        elif theirs is not None and ours is None and theirs.kind.startswith("matrix"):
            ours = parse_named_matrix(answer, theirs.kind)
        if ours is not None and theirs is not None:
            return _same_collection(ours, theirs, means, depth - 1)
        for mine, text, other in ((ours, answer, gold), (theirs, gold, answer)):
            if mine is not None and mine.kind == "parts":
                return False
            inside = _single_element(mine)
            if inside is not None and (mine is None or mine.kind != "set" or depth == MAX_DEPTH):
                pair = (inside, other) if text is answer else (other, inside)
                return _same(*pair, means, depth - (inside[:1] not in "(["))
            if mine is not None and not mine.kind.startswith("matrix") and parse_quantity(other) is not None:
                return False
        return _same_but_units(answer, gold, means, depth)
    return means.same(answer, gold)


def _is_components(text: str) -> bool:
    units = _UNIT.findall(text)
    return _COMPONENTS.fullmatch(text) is not None and len(set(units)) == len(units)


def _same_sets(answer: str, gold: str) -> Verdict:
    """Two sets of numbers, one of them a union or all reals; None where they are anything else."""
    if not any(mark in text for mark in (r"\cup", REALS) for text in (answer, gold)):
        return None
    ours, theirs = parse_spans(answer), parse_spans(gold)
    return None if ours is None or theirs is None else ours == theirs


def _single_element(container: Collection | None) -> str | None:
    """The single value of `(5)`, `\\{5\\}` or `3:2` (a fraction); None for every other collection."""
    if container is None or (len(container.elements) == 1 and container.kind not in ("()", "set")):
        return None
    if container.kind == "ratio" and len(container.elements) == 2:
        return rf"\frac{{{container.elements[0]}}}{{{container.elements[1]}}}"
    return container.elements[0] if len(container.elements) == 1 else None


def _same_but_units(answer: str, gold: str, means: Comparison, depth: int) -> Verdict:
    (value, unit), (target, gold_unit) = split_unit(answer), split_unit(gold)
    for body, mark, angle, other_unit in ((value, unit, target, gold_unit), (target, gold_unit, value, unit)):
        if mark == "deg" and other_unit in ("", "rad") and r"\pi" in angle:
            turned = rf"\frac{{({body})\pi}}{{180}}"
            return means.same(turned, target) if body is value else means.same(value, turned)
    if unit and target.endswith(f" {unit}"):  # a bare `5 m` is a product, unless the other one says that it is metres
        target = target.removesuffix(unit)
    elif gold_unit and value.endswith(f" {gold_unit}"):
        value = value.removesuffix(gold_unit)
    elif unit and not gold_unit and infer_unit(unit, gold) != gold:
        return _same(answer, infer_unit(unit, gold), means, depth - 1)
    elif gold_unit and not unit and infer_unit(gold_unit, answer) != answer:
        return _same(infer_unit(gold_unit, answer), gold, means, depth - 1)
    if not unit and not gold_unit:
        return means.same(answer, gold)
    return same_unit(unit, gold_unit) and _same(value.strip(), target.strip(), means, depth - 1)


def _same_collection(answer: Collection, key: Collection, means: Comparison, depth: int) -> Verdict:
    answer, key = as_tuple(answer, key.kind), as_tuple(key, answer.kind)
    kinds = {answer.kind, key.kind}
    if max(len(answer.elements), len(key.elements)) > MAX_ELEMENTS or not (len(kinds) == 1 or kinds == {"set", "list"}):
        return False
    if kinds <= {"set", "union"}:
        correct = [any_of(_member(ours, theirs, means, depth) for theirs in key.elements) for ours in answer.elements]
        covered = [any_of(_member(ours, theirs, means, depth) for ours in answer.elements) for theirs in key.elements]
        return all_of(correct + covered)
    if len(answer.elements) != len(key.elements):
        return False
    if "cases" in kinds:
        return _pair_cases(answer.elements, key.elements, means, depth)
    if "list" in kinds:
        return _pair_members(answer.elements, key.elements, means, depth)
    pairs = list(zip(answer.elements, key.elements, strict=True))
    verdict = all_of(_same(_without_name(ours), _without_name(theirs), means, depth) for ours, theirs in pairs)
    if verdict or answer.kind != "ratio":
        return verdict
    first, target = f"({answer.elements[0]})", f"({key.elements[0]})"  # 4:10 is 2:5: the cross products agree
    return all_of(means.equal(rf"{first}\cdot ({theirs})", rf"{target}\cdot ({ours})") for ours, theirs in pairs[1:])


def _pair_members(answers: Sequence[str], golds: Sequence[str], means: Comparison, depth: int) -> Verdict:
    """Whether each given member has a gold one for itself: `1, 1, 2` is not `1, 2, 2`."""
    if _all_are_named(golds) and not any(map(_left_side, answers)):  # the names that were left out are an order
        return all_of(_same(value, _right_side(gold), means, depth) for value, gold in zip(answers, golds, strict=True))
    return match_members(answers, golds, lambda ours, theirs: _member(ours, theirs, means, depth))


def _left_side(member: str) -> str:
    """What an equation names by its left side, `x_1` as `x`; "" where it names nothing."""
    claim = parse_relation(member)
    return claim.sides[0].partition("_")[0].strip() if claim is not None and claim.operators == ("=",) else ""


def _right_side(member: str) -> str:
    claim = parse_relation(member)
    return claim.sides[1] if claim is not None else member


def _all_are_named(members: Sequence[str]) -> bool:
    names = [_left_side(member) for member in members]
    return len(names) > 1 and all(names) and len(set(names)) == len(names)


def _pair_cases(answers: Sequence[str], golds: Sequence[str], means: Comparison, depth: int) -> Verdict:
    """The same values under the same conditions; `otherwise` is what the others leave."""
    ours, theirs = (list(zip(cells[::2], cells[1::2], strict=True)) for cells in (answers, golds))

    def same(our_case: tuple[str, str], their_case: tuple[str, str]) -> Verdict:
        conditions = [_OTHERWISE.match(case[1]) is not None for case in (our_case, their_case)]
        holds = True if any(conditions) else _same_statement(our_case[1], their_case[1], means, depth)
        return all_of([_same(our_case[0], their_case[0], means, depth), holds])

    return match_members(sorted(ours, key=lambda case: _OTHERWISE.match(case[1]) is not None), theirs, same)


def _member(answer: str, gold: str, means: Comparison, depth: int) -> Verdict:
    """Two members of a list: `x = 1` is 1 and is `x_1 = 1`, but not `y = 1`."""
    (name, value), (key, target) = split_name(answer), split_name(gold)
    if name and key and name.partition("_")[0] != key.partition("_")[0]:
        return False
    return _same_statement(value, target, means, depth)
