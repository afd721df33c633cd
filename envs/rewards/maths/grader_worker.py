"""One process of the grader: reads lines of `[given, gold]`, answers `true` or `false`; `[gold]` alone is only read.

Started as `python -I grader_worker.py MEMORY_MB ALARM_S` by `envs.rewards.maths.grader`; dies by its own alarm, even
inside a loop in C, and by its own memory limit, when the parent that should have killed it is gone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path


def main() -> None:
    memory_mb, alarm_s = int(sys.argv[1]), float(sys.argv[2])
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # -I looks nowhere near the project by itself
    import envs.rewards.maths.algebra  # noqa: F401  the seconds that this takes belong to the start, not to an answer
    from envs.rewards.maths.compare import equivalent, read_gold

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print('"ready"', file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        answer = equivalent(*question) if len(question) == 2 else read_gold(*question)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
