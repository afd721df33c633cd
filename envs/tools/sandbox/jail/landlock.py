"""Landlock (Linux 5.13): the last word on files, and on TCP and signals where the kernel is new enough."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from .linux import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every machine
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_READ = 1 << 2 | 1 << 3  # READ_FILE, READ_DIR
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # ABI -> number of file rights; later ones add none
_TCP_ABI, _SCOPE_ABI = 4, 6
_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_EXECUTE, _MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1, 1 << 6, 1 << 9, 1 << 11


def abi() -> int:
    """The kernel's version of Landlock. Raises OSError where it has none or it is switched off."""
    return syscall("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))


def restrict(version: int, readable: Sequence[str], writable: Sequence[str]) -> None:
    """Only these directories from now on, and nothing in them is executed. Needs no_new_privs."""
    every = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    attributes = struct.pack("=Q", every)
    if version >= _TCP_ABI:
        attributes += struct.pack("=Q", _BIND_AND_CONNECT)
    if version >= _SCOPE_ABI:
        attributes += struct.pack("=Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
    ruleset = syscall(
        "landlock_create_ruleset", _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    )
    change = every & ~(_EXECUTE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK)
    for paths, rights in ((readable, _READ), (writable, change)):
        for path in paths:
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", rights, beneath)
            arguments = (ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
            syscall("landlock_add_rule", _ADD_RULE, *arguments)
            os.close(beneath)
    syscall("landlock_restrict_self", _RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)
