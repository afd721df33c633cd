"""Two expressions compared by Math-Verify and SymPy. Slow to import and without a deadline: only for grader workers."""

from __future__ import annotations

from typing import Any

from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex  # type: ignore[import-untyped]
from math_verify import verify  # type: ignore[import-untyped]
from math_verify.grader import should_treat_as_complex  # type: ignore[import-untyped]

MAX_NESTING = 12  # brackets inside brackets; what is deeper is no answer, and the parser takes for ever
# Ours have cut the units, the boxes and the text before: what is left is one expression.
_SPELLING = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)


def same_expression(given: str, gold: str) -> bool:
    """Whether two cleaned texts are equal expressions. What cannot be read as mathematics equals nothing."""
    ours, theirs = _parsed(given), _parsed(gold)
    if ours is None or theirs is None:
        return False
    # No deadline of its own: it would be a signal, which neither a thread nor a loop in C would see.
    return bool(verify(theirs, ours, strict=True, timeout_seconds=None))


def _parsed(text: str) -> Any:
    if _nesting(text) > MAX_NESTING:
        return None
    try:
        latex = normalize_latex(text.replace("\u00a4", ""), config=_SPELLING)
        is_real = not should_treat_as_complex(latex)
        return latex2sympy(latex, is_real=is_real, convert_degrees=False, normalization_config=None)
    except MemoryError:
        raise
    except Exception:  # the parser's errors share no type; RecursionError is one of them
        return None


def _nesting(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    return deepest
