"""What others wrote, as a terminal or a record may have it: their text, and what their code raised.

An environment, a reward, a tool and a chat template are a user's own. What they raise is reported with the innermost
line of theirs, since the line where a library gave up, or where our own loop called, does not help. The text of an
error may be a model's: it is bounded, and nothing in it reaches a terminal as a control character.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

# printable, and drawn as nothing or as a blank: fillers, joiners, variation selectors, an empty braille cell
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
TEXT = 500  # characters of an error's own text
TRACE = 4000  # characters of the calls that led to it
_ROOT = Path(__file__).parents[1]
_OURS = tuple(f"{_ROOT / package}{os.sep}" for package in ("rlsys", "actors", "learners", "launch"))
_WORLDS = f"{_ROOT / 'envs'}{os.sep}"
_LIBRARIES = (
    *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<frozen",
)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def describe_exception(error: BaseException) -> str:
    """ "KeyError: 'inventory' (world.py:61 in step)": in one line."""
    location = place(error)
    return f"{type(error).__name__}: {_exception_text(error)}" + (f" ({location})" if location else "")


def place(error: BaseException) -> str:
    """The innermost line of a user's own file that it came through; else of an environment or a library, if it did.

    Empty where it was raised by the code that called them.
    """
    frames = _frames(error)
    user_code = [frame for frame in frames if is_own_file(frame.filename)]
    inner = user_code[-1] if user_code else frames[-1] if frames and not frames[-1].filename.startswith(_OURS) else None
    return "" if inner is None else visible(f"{os.path.basename(inner.filename)}:{inner.lineno} in {inner.name}")


def trace(error: BaseException) -> str:
    """The calls from the first that is not ours to where it was raised, as Python prints them, and what caused it.

    Of a long one the beginning and the end. Empty where all the calls are ours.
    """
    report = traceback.TracebackException.from_exception(error, limit=-64)  # a recursion has 1,000 of them
    ours = _count_own_leading_frames(report.stack)
    if ours == len(report.stack):
        return ""
    del report.stack[:ours]
    lines = [visible(line) for text in report.format() for line in text.rstrip("\n").split("\n")]
    stack_text = "\n".join(lines)
    return stack_text if len(stack_text) <= TRACE else f"{stack_text[: TRACE // 2]}\n ...\n{stack_text[-TRACE // 2 :]}"


def _count_own_leading_frames(stack: traceback.StackSummary) -> int:
    """How many calls come before the first into code that is not ours."""
    prefixes = (*_OURS, *_LIBRARIES)
    return next((at for at, frame in enumerate(stack) if not frame.filename.startswith(prefixes)), len(stack))


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Outermost first. Lines of source are not read: this is called for every episode that breaks."""
    return list(traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False))


def is_own_file(filename: str) -> bool:
    """Whether it is a user's, not ours or a library's."""
    prefixes = (*_OURS, _WORLDS, *_LIBRARIES)
    return not filename.startswith(prefixes) and not any(folder in filename for folder in _INSTALLED)


def _exception_text(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as worse:  # their own `__str__`
        message = f"its text raises {type(worse).__name__}"
    return visible(message if len(message) <= TEXT else f"{message[: TEXT // 2]} ... {message[-TEXT // 2 :]}")


def visible_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def visible(text: str) -> str:
    """What a terminal would obey, or could not show, as an escape."""
    if text.isprintable() and not INVISIBLE.search(text):
        return text
    return "".join(
        character
        if character.isprintable() and not INVISIBLE.match(character)
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
