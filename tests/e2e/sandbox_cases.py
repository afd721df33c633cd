"""Escapes and abuses: name -> code. An attempt prints one line each, "held" or "ESCAPED ...".

`{...}` are of the host: a secret file, a listening port, the number of a living process. Written as a model would
write them that wants out; `try_it` stands in front of every one.
"""

from __future__ import annotations

try_it = """
import ctypes, errno, os, signal, socket, stat, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def held(attempt, *arguments):
    try:
        result = attempt(*arguments)
    except OSError as error:
        print("held")
    else:
        print("ESCAPED", result)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result
"""

HELD = {
    # The host's files
    "reads the password file": "held(open, '/etc/passwd')",
    "reads a file of the host": "held(open, {secret_file!r})",
    "climbs out with dots": "held(open, '../../../../../..' + {secret_file!r}); held(os.listdir, '/tmp/../etc')",
    "reads through a symbolic link": "os.symlink({secret_file!r}, 'link'); held(open, 'link')",
    "reads through a link in /dev/shm": """
os.symlink('/', '/dev/shm/root'); held(open, '/dev/shm/root' + {secret_file!r})""",
    "reads the project": """
held(open, {project!r} + '/README.md'); held(os.listdir, {project!r} + '/envs/rewards')
here = os.listdir({project!r}) if os.path.isdir({project!r}) else []
print('held' if set(here) <= {{'.venv'}} else 'ESCAPED ' + str(here))""",
    "reads its walls' source": "held(open, {project!r} + '/envs/tools/sandbox/jail/seccomp.py')",
    "finds the host's files by walking": """
wanted = ({secret_name!r}, 'passwd', 'pyproject.toml')
found = [name for _, _, names in os.walk('/') for name in names if name in wanted]
print('ESCAPED ' + str(found) if found else 'held')
tops = sorted(os.listdir('/'))
print('held' if set(tops) <= {{'dev', 'tmp', *{tops!r}}} else tops)""",
    "looks at installed packages": """
for path in {site_packages!r}:
    here = os.listdir(path) if os.path.isdir(path) else []
    print('held' if set(here) <= {{'numpy', 'sympy', 'mpmath', 'gmpy2'}} else 'ESCAPED ' + str(here))""",
    "looks at other processes": """
held(os.listdir, '/proc'); held(open, '/proc/self/maps'); held(open, '/proc/1/environ')""",
    "looks at the kernel's settings": "held(os.listdir, '/sys'); held(open, '/proc/sys/kernel/core_pattern', 'w')",
    "opens devices": """
for device in ('kmsg', 'mem', 'kvm', 'vda', 'sda', 'tty', 'ptmx', 'fuse'):
    held(os.open, '/dev/' + device, os.O_RDONLY)""",
    "makes devices": """
held(os.mknod, 'disk', stat.S_IFBLK | 0o666, os.makedev(254, 0))
held(os.mknod, 'null', stat.S_IFCHR | 0o666, os.makedev(1, 3))
held(os.mkfifo, 'pipe')""",
    "writes to Python's files": """
held(open, os.__file__, 'a'); held(os.unlink, os.__file__); held(os.chmod, os.__file__, 0o777)
held(os.rename, os.path.dirname(os.__file__), '/tmp/lib'); held(os.link, os.__file__, '/tmp/os.py')""",
    "writes outside /tmp": "held(open, '/dev/new', 'w'); held(os.mkdir, '/new'); held(os.symlink, '/tmp', '/etc')",
    "changes a device that all share": """
held(os.utime, '/dev/null'); held(os.chmod, '/dev/null', 0o600); held(os.unlink, '/dev/null')""",
    "climbs through descriptors": """
root = os.open('/', os.O_PATH)
held(lambda: os.open('../../../etc/passwd', os.O_RDONLY, dir_fd=root))
for fd in range(4):
    held(os.fchdir, fd); held(os.listdir, fd)
held(os.rename, '/tmp', '/other'); held(os.rmdir, '/tmp'); held(os.rename, '/dev', '/other')""",
    "changes the root": "os.mkdir('d'); held(os.chroot, 'd'); held(os.chroot, '/')",
    "mounts": """
def checked(result):
    if result: raise OSError(ctypes.get_errno(), 'mount')
held(lambda: checked(libc.mount(b'proc', b'/tmp', b'proc', 0, None)))
held(lambda: checked(libc.mount(b'/', b'/tmp', None, 4096, None)))
held(lambda: checked(libc.umount2(b'/tmp', 2)))
held(lambda: checked(libc.umount2(b'/', 2)))
held(lambda: checked(libc.pivot_root(b'/tmp', b'/tmp')))""",
    "opens a file by handle": "held(call, {{'x86_64': 304, 'aarch64': 265}}[os.uname().machine], -100, 0, 0)",
    "keeps an inherited descriptor": """
others = [fd for fd in range(4, 1024) if not libc.fcntl(fd, 1) == -1]
print('ESCAPED ' + str(others) if others else 'held')""",
    # Other programs
    "starts a shell": """
import subprocess
held(os.execv, '/bin/sh', ['sh']); held(os.execv, sys.executable, ['python'])
held(subprocess.run, ['ls']); held(subprocess.run, 'id', ); print('ESCAPED' if os.system('true') == 0 else 'held')""",
    "starts a program of its own making": """
open('a', 'w').write('#!/bin/sh\\necho hi'); os.chmod('a', 0o4777)
held(os.execv, '/tmp/a', ['a'])
fd = os.open('a', os.O_RDONLY); held(os.execve, fd, ['a'], {{}})""",
    "loads a library that it wrote": """
open('a.so', 'wb').write(b'\\x7fELF' + bytes(2000)); held(ctypes.CDLL, '/tmp/a.so')
import mmap
fd = os.open('a.so', os.O_RDWR); held(lambda: mmap.mmap(fd, 2000, prot=mmap.PROT_READ | mmap.PROT_EXEC))""",
    "becomes root": """
held(os.setuid, 0); held(os.setgid, 0); held(os.setresuid, 0, 0, 0); held(os.setgroups, [0])
print('held' if os.getuid() == os.geteuid() == 65534 else 'ESCAPED ' + str(os.getuid()))""",
    "has capabilities": """
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc.capget(header, data)
print('ESCAPED ' + str(list(data)) if any(data) else 'held')""",
    # Network
    "connects by IPv4": "held(socket.create_connection, ('127.0.0.1', {port}), 1)",
    "connects by IPv6": "held(socket.socket, socket.AF_INET6, socket.SOCK_STREAM)",
    "asks for a name": "held(socket.getaddrinfo, 'example.com', 80)",
    "opens a web page": "import urllib.request; held(urllib.request.urlopen, 'http://127.0.0.1:{port}/')",
    "connects by unix sockets": """
for address in ({unix_path!r}, '\\0' + {abstract!r}):
    held(lambda: socket.socket(socket.AF_UNIX).connect(address))""",
    "connects a pair elsewhere": """
for address in ({unix_path!r}, '\\0' + {abstract!r}):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        ours, _ = socket.socketpair(socket.AF_UNIX, kind)
        held(ours.connect, address); held(ours.sendto, b'x', address); held(ours.sendmsg, [b'x'], [], 0, address)
        held(ours.bind, 'here')""",
    "uses other sockets": """
for family in (16, 17, 38, 40, 44):  # netlink, packet, alg, vsock, xdp
    for kind in (socket.SOCK_RAW, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        held(socket.socket, family, kind); held(socket.socketpair, family, kind)""",
    "passes descriptors": """
ours, theirs = socket.socketpair()
held(ours.sendmsg, [b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', 0))])
held(ours.listen); held(ours.setsockopt, socket.SOL_SOCKET, socket.SO_SNDBUF, 2**30)""",
    # Other processes
    "calls the functions that built its walls": """
frame, world = sys._getframe(), None
while frame:
    world, frame = frame.f_locals.get('world', world), frame.f_back
held(sys.modules['jail.execution'].execute, 0, world, None); held(sys.modules['jail.view'].enter, [])
held(sys.modules['jail.setup'].confine, world.limits, 0, [], 0, b'')""",
    "signals processes of the host": """
for number in ({victim}, {pool}):
    for send in (0, signal.SIGKILL, signal.SIGSTOP):
        held(os.kill, number, send)
held(os.killpg, {victim}, 9)""",
    "traces": "held(call, {{'x86_64': 101, 'aarch64': 117}}[os.uname().machine], 16, {victim}, 0, 0)",
    "traces its own child": """
child = os.fork()
if child == 0: time.sleep(60)
held(call, {{'x86_64': 101, 'aarch64': 117}}[os.uname().machine], 16, child, 0, 0)""",
    "reads another's memory": """
number = {{'x86_64': 310, 'aarch64': 270}}[os.uname().machine]
for process in (os.getppid(), 1, {victim}, {pool}):
    held(call, number, process, 0, 0, 0, 0, 0); held(call, number + 1, process, 0, 0, 0, 0, 0)""",
    "knows its parent": "print('held' if os.getppid() == 0 and os.getpid() == 1 else 'ESCAPED')",
    "signals through a descriptor's owner": """
import fcntl
read_end, write_end = os.pipe()
held(fcntl.fcntl, read_end, 8, {victim}); held(fcntl.fcntl, read_end, 10, 9)
held(fcntl.ioctl, read_end, 0x8901, b'1234')""",
    "leases and watches": """
import fcntl
fd = os.open('leased', os.O_CREAT | os.O_RDWR)
for command in (15, 17, 36, 37, 38, 1024, 1025, 1026, 1036, 1038, 1040): held(fcntl.fcntl, fd, command, 0)""",
    "types into the terminal": "import fcntl; held(fcntl.ioctl, 0, 0x5412, b'x'); held(os.open, '/dev/tty', os.O_RDWR)",
    "raises its limits": """
import resource
for name in ('AS', 'CPU', 'NPROC', 'FSIZE', 'NOFILE'):
    limit = getattr(resource, 'RLIMIT_' + name)
    try:
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        print('held')
    else:
        print('ESCAPED', limit)
held(resource.prlimit, {victim}, resource.RLIMIT_CPU)
held(os.setpriority, os.PRIO_PROCESS, 0, -5)""",
    # The kernel
    "makes namespaces": """
for flag in (0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x2000000, 0x80):
    held(call, {{'x86_64': 272, 'aarch64': 97}}[os.uname().machine], flag)
    if flag != 0x80: held(call, {{'x86_64': 56, 'aarch64': 220}}[os.uname().machine], flag | 17, 0, 0, 0, 0)
held(call, 435, 0, 88)""",
    "joins namespaces": "held(call, {{'x86_64': 308, 'aarch64': 268}}[os.uname().machine], 0, 0)",
    "calls what it has no business to call": """
x86 = dict(ptrace=101, syslog=103, sethostname=170, reboot=169, swapon=167, init_module=175, finit_module=313,
    kexec_load=246, kexec_file_load=320, bpf=321, perf_event_open=298, userfaultfd=323, keyctl=250, add_key=248,
    request_key=249, io_uring_setup=425, io_uring_enter=426, io_uring_register=427, iopl=172, ioperm=173, acct=163,
    quotactl=179, settimeofday=164, clock_settime=227, adjtimex=159, seccomp=317, memfd_create=319, pidfd_open=434,
    pidfd_send_signal=424, pidfd_getfd=438, open_tree=428, move_mount=429, fsopen=430, fspick=433, mount_setattr=442,
    landlock_create_ruleset=444, shmget=29, semget=64, msgget=68, mq_open=240, inotify_init1=294, fanotify_init=300,
    name_to_handle_at=303, process_madvise=440, migrate_pages=256, move_pages=279, set_mempolicy=238, vmsplice=278,
    modify_ldt=154, personality=135, setsid=112, setpgid=109, sched_setscheduler=144, kcmp=312, lookup_dcookie=212,
    memfd_secret=447, execveat=322, socket=41, connect=42, bind=49, listen=50, sendmsg=46, splice=275, made_up=1000)
arm = dict(ptrace=117, syslog=116, sethostname=161, reboot=142, swapon=224, init_module=105, finit_module=273,
    kexec_load=104, bpf=280, perf_event_open=241, userfaultfd=282, keyctl=219, add_key=217, request_key=218,
    io_uring_setup=425, io_uring_enter=426, acct=89, quotactl=60, settimeofday=170, clock_settime=112, seccomp=277,
    memfd_create=279, pidfd_open=434, pidfd_send_signal=424, pidfd_getfd=438, open_tree=428, fsopen=430, shmget=194,
    semget=190, msgget=186, mq_open=180, setsid=157, personality=92, socket=198, connect=203, bind=200, sendmsg=211)
for name, number in dict(x86_64=x86, aarch64=arm)[os.uname().machine].items():
    try:
        print('ESCAPED', name, call(number, 0, 0, 0, 0, 0, 0))
    except OSError as error:
        print('held' if error.errno in (errno.EPERM, errno.ENOSYS) else 'ESCAPED ' + name + str(error))""",
    "goes through the x32 table": """
if os.uname().machine == 'x86_64':
    held(call, 0x40000000 | 41, 2, 1, 0)
print('held')""",
    "takes the filter off": """
def checked(result):
    if result: raise OSError(ctypes.get_errno(), 'prctl')
held(lambda: checked(libc.prctl(22, 0, 0, 0, 0))); held(lambda: checked(libc.prctl(38, 0, 0, 0, 0)))
held(lambda: checked(libc.prctl(4, 1, 0, 0, 0))); held(lambda: checked(libc.prctl(1, 0, 0, 0, 0)))""",
    "sets the clock": "held(time.clock_settime, time.CLOCK_REALTIME, 0)",
    "shares memory beyond itself": """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=1000, name='left_behind', )
print('held' if os.path.exists('/tmp/left_behind') else 'ESCAPED'); block.unlink()""",
    "holds memory that nobody counts": """
import mmap
for kind in (mmap.MAP_SHARED, mmap.MAP_SHARED | 0x40000, mmap.MAP_PRIVATE | 0x40000):  # MAP_HUGETLB
    held(mmap.mmap, -1, 2**21, kind | mmap.MAP_ANONYMOUS)
held(os.open, '/dev/zero', os.O_RDWR)""",
    # Secrets of the process
    "reads the environment": """
print('held' if set(os.environ) <= {{'HOME', 'LANG'}} else 'ESCAPED ' + str(dict(os.environ)))
libc.getenv.restype = ctypes.c_char_p
print('held' if libc.getenv(b'SANDBOX_TEST_SECRET') is None else 'ESCAPED')
names, at = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, 'environ'), 0
while names[at]:
    at += 1
print(*('ESCAPED' if {secret!r}.encode() in names[i] else 'held' for i in range(at)), 'held', sep='\\n')""",
    "imports the project": """
import importlib
for name in ('envs', 'rlsys', 'actors', 'launch', 'torch', 'ray', 'omegaconf', 'pip'):
    try:
        print('ESCAPED', importlib.import_module(name))
    except ImportError:
        print('held')""",
    "knows the machine's name": "print('ESCAPED' if os.uname().nodename == {host_name!r} else 'held')",
}  # fmt: skip

# name -> (code, outcome, what the text begins with); they end by themselves or by a limit
ENDS = {
    "arithmetic without end": ("10**10**10", "timeout", "TimeoutError: the code ran longer than 1 s"),
    "a loop without end": ("while True: pass", "timeout", "TimeoutError"),
    "a loop that catches everything": (
        "while True:\n try:\n  while True: pass\n except BaseException: pass",
        "timeout",
        "TimeoutError",
    ),
    "sleeps past the deadline, deaf to signals": (
        "import signal, time\nfor number in range(1, 65):\n try: signal.signal(number, signal.SIG_IGN)\n"
        " except (OSError, ValueError): pass\ntime.sleep(60)",
        "timeout",
        "TimeoutError",
    ),
    "lies about the time": (
        "import time\ntime.time = time.monotonic = lambda: 0\nwhile time.time() < 1: pass",
        "timeout",
        "TimeoutError",
    ),
    "stops itself": ("import os, signal, time\nos.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)", "timeout", ""),
    "stopped children that hold the output": (
        "import os, signal, time\nfor i in range(5):\n if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "while True: time.sleep(1)",
        "timeout",
        "",
    ),
    "a fork bomb": (
        "import os\nwhile True:\n try: os.fork()\n except OSError: pass",
        "timeout",
        "TimeoutError",
    ),
    "forks in many threads": (
        "import os, threading, time\ndef storm():\n while True:\n  try:\n   if os.fork() == 0: os._exit(0)\n"
        "  except OSError: pass\nfor i in range(8):\n try: threading.Thread(target=storm).start()\n"
        " except RuntimeError: pass\ntime.sleep(60)",
        "timeout",
        "TimeoutError",
    ),
    "a parent that waits for a vfork": (
        "import ctypes, os, time\nclone = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]\n"
        "ctypes.CDLL(None).syscall(clone, 0x4000 | 17, 0, 0, 0, 0)\ntime.sleep(60)",
        "timeout",
        "TimeoutError",
    ),
    "signals without end": (
        "import os, signal, time\nif (child := os.fork()) == 0:\n"
        " signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(60)\ntime.sleep(0.1)\n"
        "for i in range(100_000): os.kill(child, signal.SIGRTMIN)\nprint('sent')",
        "ok",
        "sent",
    ),
    "a child that fails by itself": (
        "import os\nif os.fork() == 0: raise ValueError('of the child')\nos.wait(); print('of the parent')",
        "ok",
        "of the parent",
    ),
    "threads that never end": (
        "import threading, time\ntry:\n while True: threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "except RuntimeError: print(threading.active_count() <= 16)",
        "ok",
        "True",
    ),
    "children that outlive it": (
        "import os, time\nfor i in range(5):\n if os.fork() == 0:\n  if os.fork() == 0: time.sleep(60)\n"
        "  os._exit(0)\nprint('left')",
        "ok",
        "left",
    ),
    "kills everything that it can": ("import os\nos.kill(-1, 9); print('alive')", "error", "ProcessLookupError"),
    "a segmentation fault": ("import ctypes; ctypes.string_at(0)", "killed", "Killed: SIGSEGV"),
    "aborts": ("import os; os.abort()", "killed", "Killed: SIG"),
    "leaves without a word": ("import os; print('said'); os._exit(0)", "ok", "said"),
    "leaves with a status": ("import os; os._exit(3)", "error", "SystemExit: 3"),
    "exits": ("import sys; print('said'); sys.exit()", "ok", "said"),
    "exits with a message": ("import sys; sys.exit('no')", "error", "SystemExit: no"),
    "interrupts itself": ("import os, signal; os.kill(1, signal.SIGINT)", "error", "KeyboardInterrupt"),
    "recursion without end": ("def f(): f()\nf()", "error", "RecursionError"),
    "recursion into the stack's end": (
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n def __repr__(self): return repr(self)\nrepr(A())",
        "killed",
        "Killed: SIGSEGV",
    ),
    "nested beyond the parser": ("(" * 5000 + ")" * 5000, "error", "SyntaxError"),
    "a memory bomb": ("x = []\nwhile True: x.append(bytearray(10**7))", "memory", "MemoryError"),
    "a memory bomb of small things": ("x = []\nwhile True: x.append([])", "memory", "MemoryError"),
    "one large block": ("b'x' * 10**10", "memory", "MemoryError"),
    "memory of a compiled package": ("import numpy\nnumpy.ones(10**9)", "memory", ""),
    "a memory bomb in many processes": (
        "import os, time\nfor i in range(8):\n if os.fork() == 0: break\n"
        "x = bytearray(60 * 2**20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(60)",
        "memory",
        "MemoryError: more than 128 MB",
    ),
    "memory of processes whose first thread has ended": (
        "import ctypes, os, threading, time\ndef hold():\n x = bytearray(60 * 2**20)\n"
        " for i in range(0, len(x), 4096): x[i] = 1\n time.sleep(60)\n"
        "for i in range(5):\n if os.fork() == 0:\n  threading.Thread(target=hold).start()\n"
        "  ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)\ntime.sleep(60)",
        "memory",
        "MemoryError: more than 128 MB",
    ),
    "fills the disk": (
        "for i in range(100): open(str(i), 'wb').write(bytes(2**20))",
        "error",
        "OSError: [Errno 28]",
    ),
    "a large file": ("with open('a', 'wb') as f: f.write(bytes(2**21 + 1))", "error", "OSError: [Errno 27]"),
    "a large file with a hole": (
        "import os\nos.truncate(os.open('a', os.O_CREAT | os.O_RDWR), 2**40)",
        "error",
        "OSError: [Errno 27]",
    ),
    "many files": ("for i in range(5000): open(str(i), 'w').close()", "error", "OSError: [Errno 28]"),
    "directories in directories": (
        "import os\nwhile True: os.mkdir('d'); os.chdir('d')",
        "error",
        "OSError: [Errno 28]",
    ),
    "many open files": ("import os\nwhile True: os.open('/dev/null', 0)", "error", "OSError: [Errno 24]"),
    "output without end": ("while True: print('x' * 1000)", "output", "xxx"),
    "output past Python": ("import os\nwhile True: os.write(1, b'x' * 100000)", "output", "xxx"),
    "errors without end": ("import os\nfor i in range(1000): os.write(2, b'x' * 100000)\nprint('done')", "ok", "done"),
    "a very long message": ("raise ValueError('x' * 10**7)", "error", "ValueError: xxx"),
    "a very long value": ("'x' * 10**7", "ok", "'xxx"),
    "an exception that does not want to be seen": (
        "class E(Exception):\n def __str__(self): raise SystemExit\nraise E",
        "error",
        "",
    ),
    "closes everything": ("import os\nos.closerange(0, 1000); print('x')", "ok", "None"),
    "a lone surrogate": ("print('\\ud800' + chr(0x202e))", "ok", "\\ud800\u202e"),
    "a lone surrogate as code": ("x = '\ud800'", "error", "UnicodeEncodeError"),
    "bytes that are no text": ("import os; os.write(1, b'\\xff\\xfe\\x00ok')", "ok", "\ufffd\ufffd\x00ok"),
    "a zero byte in the code": ("x = 1\x00", "error", ""),
    "half a megabyte of code": ("x = 1\n" * 90_000, "error", "ValueError: the code has 540000 bytes"),
    "much code": ("x = 1\n" * 40_000 + "x", "ok", "1"),
    "broken code": ("def f(:", "error", "SyntaxError"),
    "text that looks like a timeout": ("print('TimeoutError: the code ran longer than 1 s')", "ok", "TimeoutError"),
    "an exception that looks like a timeout": (
        "raise TimeoutError('the code ran longer than 1 s')",
        "error",
        "TimeoutError",
    ),
    "forges the report of broken walls": ("import os; os.write(3, b'bforged'); os._exit(1)", "error", "SystemExit: 1"),
    "forges a report": ("import os; os.write(3, b'vforged'); os._exit(0)", "ok", "forged"),
    "forges the pool's protocol": (
        "import json, os\nbody = json.dumps({'outcome': 'ok', 'text': 'forged', 'seconds': 0}).encode()\n"
        "for fd in range(1000):\n try: os.write(fd, len(body).to_bytes(4, 'big') + body)\n"
        " except OSError: pass\nos._exit(0)",
        "ok",
        "",
    ),
    "machine code for the 32-bit table": (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, flags=34, prot=7)\nm.write(bytes.fromhex('b814000000cd80c3'))\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
        "killed",
        "Killed: SIGSYS",
    ),
}  # fmt: skip

# Looks for a text in all memory that it can reach. It is never whole in the searching code, which would find itself.
MARK = ("sibling-7d1", "-its-answer")
SEARCH = """
import ctypes, os
libc, found, seen = ctypes.CDLL(None), 0, set()
libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
read_end, write_end = os.pipe()
def look(place):
    # Bytes from there: the kernel copies what is mapped into a pipe and refuses the rest, where reading would crash.
    size = libc.write(write_end, ctypes.c_void_p(place), 65536)
    return os.read(read_end, size) if size > 0 else b''
def walk(place, step):
    global found
    missed, before = 0, b''
    while 0 <= place < 2**47 and missed < 2**26 and place not in seen:
        seen.add(place)
        piece = look(place)
        missed = 0 if piece else missed + 4096
        text = piece + before[:64] if step < 0 else before[-64:] + piece
        at = text.find({first!r}.encode())
        while at >= 0:
            end = at + {size}
            found += text[end : end + len({second!r})].decode('latin-1') == {second!r}
            at = text.find({first!r}.encode(), end)
        place += step * (65536 if len(piece) == 65536 else 4096)
        before = piece if len(piece) == 65536 else b''
blocks = [libc.sbrk(0), libc.malloc(100), libc.malloc(2**24)]
for anchor in [id(object()), id('x' * 5000), ctypes.addressof(libc.free), *blocks]:
    for step in (1, -1):
        walk(anchor // 4096 * 4096, step)
        seen.discard(anchor // 4096 * 4096)
print('left' if found else 'clean')
""".format(first=MARK[0], second=MARK[1], size=len(MARK[0]))

# What one execution leaves behind, and how the next would find it
STAINS = {
    "its code": (f"answer = '{MARK[0]}{MARK[1]}'", SEARCH),
    "its code, which is long": ("x = 1\n" * 20_000 + f"answer = '{MARK[0]}{MARK[1]}'", SEARCH),
    "its printed text": (f"print('{MARK[0]}' + '{MARK[1]}')", SEARCH),
    "its value": (f"'{MARK[0]}' + '{MARK[1]}'", SEARCH),
    "a variable": ("x = 'left'", "globals().get('x', 'clean')"),
    "a file": ("open('/tmp/x', 'w').write('left')", "import os\n'left' if os.listdir('/tmp') else 'clean'"),
    "a patched module": ("import math; math.pi = 'left'", "import math\nmath.pi if math.pi == 'left' else 'clean'"),
    "a builtin": ("import builtins; builtins.print = builtins.len = None", "len(str(print)) and 'clean'"),
    "a module": ("import sys; sys.modules['x'] = 1", "import sys\n'left' if 'x' in sys.modules else 'clean'"),
    "a variable of the environment": (
        "import os; os.environ['X'] = '1'",
        "import os\n'left' if 'X' in os.environ else 'clean'",
    ),
    "an import path": (
        "import sys; sys.path.append('/left')",
        "import sys\n'left' if '/left' in sys.path else 'clean'",
    ),
    "a signal handler": (
        "import signal; signal.signal(15, signal.SIG_IGN)",
        "import signal\n'clean' if signal.getsignal(15) == signal.SIG_DFL else 'left'",
    ),
    "a flag of its input": (
        "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)",
        "import fcntl, os\n'left' if fcntl.fcntl(0, fcntl.F_GETFL) & os.O_NONBLOCK else 'clean'",
    ),
    "a lock on its input": (
        "import fcntl; fcntl.flock(0, fcntl.LOCK_EX)",
        "import fcntl\ntry: fcntl.flock(open('/dev/null'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: print('left')\nelse: print('clean')",
    ),
    "a process": (
        "import os, time\nif os.fork() == 0: time.sleep(60)",
        "import os\ntry: os.kill(-1, 0)\nexcept ProcessLookupError: print('clean')",
    ),
}  # fmt: skip
