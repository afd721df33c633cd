"""The file system that executed code sees: Python's own files, a few devices, an empty /tmp. Nothing else exists."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from .linux import MS_BIND, MS_NODEV, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT, make_root, mount

_DEVICES = ("null", "full", "random", "urandom")  # not zero: mapped, it is memory that no process is charged with
_BUILD_AT = "/proc"  # exists everywhere, and nothing that is shown lies below it
_KEPT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC  # a mount may not lose these; equal to the MS_ values


def python_trees() -> list[str]:
    """The directories that importing needs now: the standard library, and the packages that are loaded already."""
    standard = [path for path in sys.path if os.path.isdir(path)]
    loaded = [
        os.path.abspath(path)
        for name, module in list(sys.modules.items())
        if "." not in name and name != __package__
        for path in getattr(module, "__path__", ())
    ]
    trees: list[str] = []
    for path in [*standard, *loaded]:
        inside_standard = any(_below(path, tree) and not _below(path, f"{tree}/site-packages") for tree in trees)
        if os.path.isdir(path) and not inside_standard and path not in trees:
            trees.append(path)
    return trees


def enter(trees: Sequence[str]) -> None:
    """Make `trees`, at the paths that they have now, the whole world of this mount namespace, read-only."""
    os.umask(0o022)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", _BUILD_AT, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=1k,mode=755")
    for tree in trees:
        _show(tree)
    for name in ("site-packages", "dist-packages"):  # packages installed next to the standard library stay hidden
        for tree in trees:
            hidden = f"{_BUILD_AT}{tree}/{name}"
            if os.path.isdir(hidden):
                _hide(hidden, [inner for inner in trees if _below(inner, f"{tree}/{name}")])
    os.makedirs(f"{_BUILD_AT}/dev")
    for device in _DEVICES:
        target = f"{_BUILD_AT}/dev/{device}"
        open(target, "x").close()
        mount(f"/dev/{device}", target, "", MS_BIND)
        _make_read_only(target)  # it can be written to all the same, but its times stay
    os.symlink("/tmp", f"{_BUILD_AT}/dev/shm")  # where the C library keeps semaphores
    os.makedirs(f"{_BUILD_AT}/tmp", exist_ok=True)
    mount("", _BUILD_AT, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    make_root(_BUILD_AT)


def private_tmp(kilobytes: int) -> None:
    """An empty /tmp of this execution alone, gone with its mount namespace; it becomes the working directory."""
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | 8, f"size={kilobytes}k,nr_inodes=1k,mode=700")
    os.chdir("/tmp")


def _show(tree: str) -> None:
    target = f"{_BUILD_AT}{tree}"
    os.makedirs(target, exist_ok=True)
    mount(tree, target, "", MS_BIND | MS_REC)
    _make_read_only(target, MS_NODEV)


def _make_read_only(target: str, more: int = 0) -> None:
    flags = os.statvfs(target).f_flag & _KEPT_FLAGS
    mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | flags | more)


def _hide(directory: str, shown_inside: Iterable[str]) -> None:
    mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=755")
    for tree in shown_inside:
        _show(tree)
    mount("", directory, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")
