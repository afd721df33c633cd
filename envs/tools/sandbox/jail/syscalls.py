"""The system calls that executed code may make: name -> number on (x86_64, aarch64), None where there is no such call.

An allow-list: what is not here is refused, also what a later kernel adds. Numbers are the kernel's ABI
(arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h); a test compares them with the headers.
"""

from __future__ import annotations

from collections.abc import Mapping

Numbers = Mapping[str, tuple[int | None, int | None]]

# Memory, time, waiting, reading from and writing to what is open.
BASE: Numbers = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286), "pwritev2": (328, 287),
    "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None),
    "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59), "sendfile": (40, 71),
    "stat": (4, None), "lstat": (6, None), "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291),
    "statfs": (137, 43), "fstatfs": (138, 44), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "getdents": (78, None),
    "getdents64": (217, 61), "fadvise64": (221, 223), "chdir": (80, 49), "fchdir": (81, 50), "umask": (95, 166),
    "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "madvise": (28, 233),
    "brk": (12, 214), "msync": (26, 227), "mincore": (27, 232), "membarrier": (324, 283),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "pause": (34, None),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102), "restart_syscall": (219, 128),
    "exit": (60, 93), "exit_group": (231, 94), "set_tid_address": (218, 96), "set_robust_list": (273, 99),
    "rseq": (334, 293), "futex": (202, 98), "arch_prctl": (158, None),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getresuid": (118, 148), "getresgid": (120, 150),
    "getgroups": (115, 158), "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156), "capget": (125, 90),
    "getrlimit": (97, 163), "setrlimit": (160, 164), "getrusage": (98, 165), "times": (100, 153), "sysinfo": (99, 179),
    "uname": (63, 160), "getcpu": (309, 168), "getpriority": (140, 141),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "time": (201, None), "gettimeofday": (96, 169), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "getrandom": (318, 278),
    "select": (23, None), "pselect6": (270, 72), "poll": (7, None), "ppoll": (271, 73), "epoll_create": (213, None),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441), "eventfd": (284, None), "eventfd2": (290, 19),
    "recvfrom": (45, 207), "recvmsg": (47, 212), "shutdown": (48, 210), "getsockname": (51, 204),
    "getpeername": (52, 205), "getsockopt": (55, 209),
}  # fmt: skip

# Child processes and signals, for code in a PID namespace.
PROCESSES: Numbers = {
    "fork": (57, None), "vfork": (58, None), "wait4": (61, 260), "waitid": (247, 95),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
}  # fmt: skip

# Changes to files, for code that has a private file system.
WRITING: Numbers = {
    "open": (2, None), "openat": (257, 56), "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37),
    "symlink": (88, None), "symlinkat": (266, 36), "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "utimensat": (280, 88),
    "copy_file_range": (326, 285),
}  # fmt: skip

# Allowed with certain arguments only: see seccomp.py.
BY_ARGUMENT: Numbers = {
    "open": (2, None), "openat": (257, 56), "clone": (56, 220), "clone3": (435, 435), "fcntl": (72, 25),
    "ioctl": (16, 29), "mmap": (9, 222), "prctl": (157, 167), "prlimit64": (302, 261), "sendto": (44, 206),
    "socketpair": (53, 199),
}  # fmt: skip
