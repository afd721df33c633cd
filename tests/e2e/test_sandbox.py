"""The Python tool's protocol and its filter. What tries to get out, and what breaks, is in tests/e2e."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.tools.sandbox import Execution, Outcome, Sandbox, SandboxConfig
from envs.tools.sandbox.jail import frames, seccomp, syscalls
from rlsys.errors import BadInput

FAST: dict[str, Any] = {"workers": 1, "preload": ["dataclasses"], "allow_weaker": True}
ALLOW, KILL, REFUSED, UNKNOWN = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
X86, ARM = 0xC000003E, 0xC00000B7


def run_all(codes: list[str], **config: Any) -> list[Execution]:
    async def main() -> list[Execution]:
        sandbox = Sandbox(SandboxConfig(**{**FAST, **config}))
        await sandbox.start()
        try:
            return [await sandbox.run(code) for code in codes]
        finally:
            await sandbox.close()

    return asyncio.run(main())


def test_what_comes_back() -> None:
    expected = {
        "print('a'); print('b')": ("a\nb", "ok"),
        "1 + 1": ("2", "ok"),
        "x = [3]\nx": ("[3]", "ok"),
        "print(1)\n2": ("1", "ok"),  # printed text wins over the last value
        "'a'": ("'a'", "ok"),
        "None": ("None", "ok"),
        "x = 1": ("None", "ok"),
        "": ("None", "ok"),
        "# nothing": ("None", "ok"),
        "print('before')\n1 / 0": ("before\nZeroDivisionError: division by zero", "error"),
        "print('half', 21)\nexit()": ("half 21", "ok"),
        "print('half', 21)\nquit(3)": ("half 21\nSystemExit: 3", "error"),
        "raise ValueError('one\\ntwo')": ("two", "error"),
        "def f(:": ("SyntaxError: invalid syntax", "error"),
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n x: int\nA(1)": ("A(x=1)", "ok"),
        "if __name__ == '__main__': print('main')": ("main", "ok"),
        "input()": ("EOFError: EOF when reading a line", "error"),
        "print('é', '数')": ("é 数", "ok"),
    }
    results = run_all(list(expected))
    outcomes = {code: (result.text, str(result.outcome)) for code, result in zip(expected, results, strict=True)}
    assert outcomes == expected


def test_what_was_printed_before_a_deadline_is_shown() -> None:
    (result,) = run_all(["print('half', 21)\nwhile True: pass"], timeout_s=1)
    assert (result.outcome, result.text) == (Outcome.TIMEOUT, "half 21\nTimeoutError: the code ran longer than 1 s")


def test_too_much_output_is_cut_and_too_much_code_not_run() -> None:
    codes = ["print('x' * 2000)", "import sys\nn = sys.stdout.write('x' * 1024)", "#" * 1025]
    cut, uncut, refused = run_all(codes, output_kb=1, code_kb=1)
    assert (cut.outcome, cut.text) == (Outcome.OUTPUT, "x" * 1024 + "\n[output cut at 1 KB]")
    assert (uncut.outcome, uncut.text) == (Outcome.OK, "x" * 1024)
    assert (refused.outcome, refused.text) == (
        Outcome.ERROR,
        "ValueError: the code has 1025 bytes, at most 1024 are run",
    )


def test_a_result_that_takes_many_bytes_a_character_arrives() -> None:
    (result,) = run_all(["raise ValueError('\\ud800' * 70_000)"], output_kb=64, timeout_s=10)
    assert (result.outcome, result.text[:24]) == (Outcome.ERROR, "ValueError: \\ud800\\ud800")


def test_a_package_that_is_not_installed_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"sandbox\.preload=nosuchmodule: expected an installed module"):
        asyncio.run(Sandbox(SandboxConfig(preload=["nosuchmodule"])).start())


@pytest.mark.parametrize(
    "wrong",
    [{"workers": 0}, {"timeout_s": 0.0}, {"memory_mb": 1}, {"output_kb": 0}, {"preload": ["os; print(1)"]}],
)
def test_config_names_the_wrong_key(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=rf"^sandbox\.{next(iter(wrong))}="):
        SandboxConfig(**wrong)


@given(st.text(max_size=200))
def test_frames_carry_any_text(text: str) -> None:
    read_end, write_end = os.pipe()
    try:
        frames.write(write_end, {"code": text})
        assert frames.read(read_end) == {"code": text}
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_stream_that_ends_early_is_the_end() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, frames.pack({"code": "x"})[:-1])
    os.close(write_end)
    assert frames.read(read_end) is None
    os.close(read_end)


# The filter, run by an interpreter: also for the machine that this is not.


def decide(program: bytes, arch: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = list(struct.iter_unpack("<HBBI", program))
    register, at = 0, 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
            continue
        if code == 0x54:
            register &= value
            continue
        holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[code]
        at += yes if holds else no


FULL = {"files": "private", "processes": True}
READABLE = {"files": "readable", "processes": False}
NOTHING = {"files": "none", "processes": False}
DECISIONS = [  # machine, mode, (x86_64 number, aarch64 number), arguments, verdict
    (FULL, (0, 63), (), ALLOW),  # read
    (FULL, (41, 198), (2, 1, 0), REFUSED),  # socket
    (FULL, (59, 221), (), REFUSED),  # execve
    (FULL, (101, 117), (), REFUSED),  # ptrace
    (FULL, (56, 220), (17,), ALLOW),  # clone, as fork does it
    (FULL, (56, 220), (0x10000000 | 17,), REFUSED),  # clone into a user namespace
    (FULL, (435, 435), (), UNKNOWN),  # clone3: libc falls back
    (FULL, (257, 56), (0, 0, 0o1102), ALLOW),  # openat to write
    (FULL, (53, 199), (1,), ALLOW),  # socketpair(AF_UNIX)
    (FULL, (53, 199), (16,), REFUSED),
    (FULL, (44, 206), (3, 0, 0, 0, 0), ALLOW),  # send on what is connected
    (FULL, (44, 206), (3, 0, 0, 0, 0x1000), REFUSED),  # sendto an address
    (FULL, (44, 206), (3, 0, 0, 0, 0x100000000), REFUSED),  # whose low half is zero
    (FULL, (302, 261), (0,), ALLOW),  # prlimit of itself
    (FULL, (302, 261), (1,), REFUSED),
    (FULL, (16, 29), (0, 0x5412), 0x50000 | errno.ENOTTY),  # TIOCSTI
    (FULL, (9, 222), (0, 1, 3, 0x22), ALLOW),  # mmap of private memory
    (FULL, (9, 222), (0, 1, 3, 0x01), ALLOW),  # of a file, shared
    (FULL, (9, 222), (0, 1, 3, 0x21), REFUSED),  # shared memory of no file
    (FULL, (9, 222), (0, 1, 3, 0x4021), REFUSED),  # whatever else is asked for
    (FULL, (9, 222), (0, 1, 3, 0x40022), REFUSED),  # huge pages
    (FULL, (1000, 1000), (), REFUSED),  # what a later kernel may add
    (READABLE, (257, 56), (0, 0, 0o2000000), ALLOW),  # openat, read-only and close-on-exec
    (READABLE, (257, 56), (0, 0, 0o1), REFUSED),
    (READABLE, (257, 56), (0, 0, 0o100), REFUSED),  # O_CREAT
    (READABLE, (257, 56), (0, 0, 0o20200000 | 0o2), REFUSED),  # O_TMPFILE
    (READABLE, (56, 220), (17,), REFUSED),
    (READABLE, (56, 220), (0x10F00,), REFUSED),  # a thread
    (READABLE, (62, 129), (1, 9), REFUSED),  # kill
    (READABLE, (263, 35), (), REFUSED),  # unlinkat
    (NOTHING, (257, 56), (0, 0, 0), REFUSED),
]


@pytest.mark.parametrize(("machine", "column", "arch"), [("x86_64", 0, X86), ("aarch64", 1, ARM)])
def test_the_filter_decides(machine: str, column: int, arch: int) -> None:
    wrong = [
        (mode, numbers, arguments)
        for mode, numbers, arguments, verdict in DECISIONS
        if decide(seccomp.build(machine, **mode), arch, numbers[column], *arguments) != verdict  # type: ignore[arg-type]
    ]
    assert wrong == []


def test_numbers_of_another_table_do_not_pass() -> None:
    program = seccomp.build("x86_64", files="private", processes=True)
    assert decide(program, 0x40000003, 3) == KILL  # 32-bit x86, where 3 is read
    assert decide(program, X86, 0x40000000) == UNKNOWN  # x32's read
    assert decide(seccomp.build("aarch64", files="private", processes=True), X86, 0) == KILL


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(ValueError):
        seccomp.build("riscv64", files="private", processes=True)


HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h"))


@pytest.mark.skipif(not all(path.exists() for path in HEADERS), reason="the kernel's headers are not installed")
def test_the_numbers_are_the_kernels() -> None:
    ours = {**syscalls.BASE, **syscalls.PROCESSES, **syscalls.WRITING, **syscalls.BY_ARGUMENT}
    for column, header in enumerate(HEADERS):
        matches = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE)
        theirs = {name: int(number) for name, number in matches}
        theirs.setdefault("newfstatat", theirs.get("fstatat", 79))
        table = {name: numbers[column] for name, numbers in ours.items() if numbers[column] is not None}
        assert {name: theirs.get(name) for name in table} == table
