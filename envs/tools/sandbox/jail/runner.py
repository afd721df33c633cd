"""Run a text as a notebook's cell would be run. Only ever called in a confined child."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import os
import random
import sys
import traceback
import types

OK, ERROR, MEMORY = b"v", b"e", b"m"  # first byte of the report; the text follows
_SPARE = 1 << 20  # bytes


def run(code: str, report_fd: int, limit: int) -> None:
    """Execute `code`, write one report of at most `limit` characters to `report_fd`, and end the process.

    The report is the representation of a last expression's value, or the last line of the traceback. The code runs in
    this very process and could write it too: it decides nothing that the code could not print.
    """
    printed = io.FileIO(1, "w", closefd=False)  # line by line: what was printed before a deadline is there
    output = io.TextIOWrapper(printed, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # as in every script; site is not imported
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = output
    write, leave, number, first = os.write, os._exit, os.getpid, os.getpid()
    random.seed(0)  # a fork reseeds it: the same code is to print the same text
    spare = bytearray(_SPARE)
    try:
        report = OK + _bytes(_value(code), limit)
    except BaseException as error:
        del spare  # the code may have left no memory to say so
        report = _failure(error, limit)
    with contextlib.suppress(OSError, ValueError):  # closed by the code
        output.flush()
    if number() == first:  # what a fork of it comes to is not the result
        with contextlib.suppress(OSError):
            write(report_fd, report)
    leave(0)


def _failure(error: BaseException, limit: int) -> bytes:
    if isinstance(error, SystemExit):
        ended_well = error.code is None or error.code == 0
        return OK if ended_well else ERROR + _bytes(f"SystemExit: {error.code}", limit)
    return (MEMORY if isinstance(error, MemoryError) else ERROR) + _bytes(_last_line(error), limit)


def _value(code: str) -> str:
    """The representation of the last statement's value, empty where it is no expression or None."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    body = ast.parse(code, "<code>").body
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module(body, []), "<code>", "exec"), module.__dict__)  # noqa: S102 the one place made for it
        return ""
    exec(compile(ast.Module(body[:-1], []), "<code>", "exec"), module.__dict__)  # noqa: S102
    value = eval(compile(ast.Expression(last.value), "<code>", "eval"), module.__dict__)  # noqa: S307
    return "" if value is None else repr(value)


def _last_line(error: BaseException) -> str:
    try:
        lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
        return lines[-1]
    except BaseException:  # an exception that does not want to be printed
        return type(error).__name__


def _bytes(text: str, limit: int) -> bytes:
    return text[:limit].encode("utf-8", "backslashreplace")[: 4 * limit]  # more, and the reader stops reading
