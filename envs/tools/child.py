"""Starts a tool's process: python child.py PARENT MEMORY_MB COMMAND... Standard library alone; it becomes COMMAND.

The kernel ends it with its parent, and refuses it more memory for data than it may have.
"""

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, memory_mb, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the line above
        sys.exit(1)
    if int(memory_mb):
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory_mb) << 20, int(memory_mb) << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execvp(command[0], command)
