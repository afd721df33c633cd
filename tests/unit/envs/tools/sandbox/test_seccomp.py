"""The system-call filter, run as the kernel would run it."""

from __future__ import annotations

import errno
import struct

import pytest

from envs.tools.sandbox.jail.linux import CLONE_NEWUSER
from envs.tools.sandbox.jail.seccomp import Files, build
from envs.tools.sandbox.jail.syscalls import BASE, BY_ARGUMENT, PROCESSES, WRITING

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
PERM, NO_SYSCALL, NO_TERMINAL = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO | errno.ENOTTY
HIGH = 1 << 32  # a bit in the upper half of an argument


def ask(program: bytes, arch: int, number: int, *args: int) -> int:
    """Classic BPF over `struct seccomp_data`: what the filter returns."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    code, accumulator, at = list(struct.iter_unpack("<HBBI", program)), 0, 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
            case _:
                at += (
                    yes
                    if {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[
                        operation
                    ]
                    else no
                )


def answer(name: str, *args: int, machine: str = "x86_64", files: Files = "none", processes: bool = False) -> int:
    numbers = {**BASE, **PROCESSES, **WRITING, **BY_ARGUMENT}[name]
    number = numbers[tuple(MACHINES).index(machine)]
    assert number is not None
    return ask(build(machine, files=files, processes=processes), MACHINES[machine], number, *args)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("files", ["private", "readable", "none"])
def test_what_is_in_a_table_is_allowed_to_whom_it_is_for_and_nothing_else(
    machine: str, files: Files, processes: bool
) -> None:
    column = tuple(MACHINES).index(machine)
    program = build(machine, files=files, processes=processes)
    right = {**BASE, **(PROCESSES if processes else {}), **(WRITING if files == "private" else {})}
    expected = {numbers[column] for numbers in right.values()} - {None}
    by_argument = {numbers[column] for numbers in BY_ARGUMENT.values()} - {None}
    for number in set(range(500)) - by_argument:
        assert ask(program, MACHINES[machine], number) == (ALLOW if number in expected else PERM), number
    other = next(arch for name, arch in MACHINES.items() if name != machine)
    assert ask(program, other, 0) == KILL
    if machine == "x86_64":
        assert ask(program, MACHINES[machine], 0x40000000) == NO_SYSCALL  # the second table


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        ("clone3", (0,), NO_SYSCALL),
        ("fcntl", (9, 4), ALLOW),
        ("fcntl", (4, 8), PERM),  # F_SETOWN; the first argument is a descriptor
        ("ioctl", (1, 0x5401), ALLOW),
        ("ioctl", (0x5401, 0x5412), NO_TERMINAL),  # TIOCSTI
        ("mmap", (0, 4096, 3, 0x22), ALLOW),  # private and anonymous
        ("mmap", (0, 4096, 3, 0x01), ALLOW),  # shared, of a file
        ("mmap", (0, 4096, 3, 0x21), PERM),
        ("mmap", (0, 4096, 3, 0x40022), PERM),  # huge pages
        ("prctl", (15,), ALLOW),
        ("prctl", (22,), PERM),
        ("prlimit64", (0,), ALLOW),
        ("prlimit64", (1,), PERM),
        ("socketpair", (1,), ALLOW),
        ("socketpair", (2,), PERM),
        ("sendto", (5, 0, 0, 0, 0), ALLOW),
        ("sendto", (5, 0, 0, 0, 7), PERM),  # an address
        ("sendto", (5, 0, 0, 0, HIGH), PERM),
        ("clone", (0,), PERM),
    ],
)
def test_what_goes_by_its_arguments(machine: str, call: str, args: tuple[int, ...], expected: int) -> None:
    assert answer(call, *args, machine=machine) == expected


def test_processes_are_started_within_the_namespaces_that_there_are() -> None:
    assert answer("clone", 17, processes=True) == ALLOW
    assert answer("clone", 17 | CLONE_NEWUSER, processes=True) == PERM


@pytest.mark.parametrize(("call", "before"), [("open", (7,)), ("openat", (7, 7))])
def test_files_that_are_readable_are_not_written(call: str, before: tuple[int, ...]) -> None:
    def opened(flags: int, files: Files) -> int:
        return answer(call, *before, flags, files=files)

    for flags in (0o1, 0o2, 0o100, 0o1000, 0o2000):  # write, read and write, create, truncate, append
        assert (opened(flags, "readable"), opened(flags, "private"), opened(flags, "none")) == (PERM, ALLOW, PERM)
    assert (opened(0o4000, "readable"), opened(0, "none")) == (ALLOW, PERM)
