"""`rlsys view`: the report of a run in a browser, also while the run is in progress."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from launch.driver.observe.progress import Bar
from launch.tools.report.build import build_report
from launch.tools.report.kept import parse_room
from launch.tools.report.live import LiveRuns
from launch.tools.report.page import KEEP

HELP = "show the report of runs in a browser, also while they are in progress"
EXAMPLES = """examples:
  rlsys view runs/q                                       prints a link; Ctrl-C ends it
  rlsys view runs/q-1 runs/q-2 --port 7790                two runs side by side
  ssh -L 7788:127.0.0.1:7788 HOST                         on your own machine, if the run is on another one

The page is on 127.0.0.1 alone, and only the link opens it. `rlsys show` prints a trajectory in the terminal.
"""


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_dirs", metavar="RUN_DIR", nargs="+", type=Path, help="run directory of rlsys train")
    command.add_argument("--port", type=int, default=7788, help="port; 0: a free one (default: %(default)s)")
    command.add_argument(
        "--trajectories",
        metavar="N|SIZE|all|none",
        default=KEEP,
        help="number of trajectories that the page lists, or their size in it (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    from envs.services.http import serve_until_signal  # the HTTP server behind these two: the help goes without
    from launch.tools.report.server import make_server

    token = secrets.token_urlsafe(24)
    runs = LiveRuns(options.run_dirs, build_report, parse_room(options.trajectories))
    with Bar() as bar:
        runs.newest(bar)  # what is no run directory is said before anything is served

    def started(url: str) -> None:
        port = url.rpartition(":")[2]
        print(f"rlsys: {url}/{token}/", flush=True)
        print(f"rlsys: from another machine: ssh -L {port}:127.0.0.1:{port} THIS_HOST, then the same link", flush=True)
        print("rlsys: Ctrl-C ends it", flush=True)

    serve_until_signal(make_server(runs, options.port, token), started)
