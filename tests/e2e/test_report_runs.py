"""Pages of runs in a real browser: of those that ended in any way, and of one in progress."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.worker import Excerpt
from launch.config.compose import compose
from launch.driver.run.now_playing import show_playing
from launch.run_dir.directory import read_directory
from launch.run_dir.episodes import read_episodes
from launch.run_dir.state import LOCK
from launch.tools.report.build import build_report
from launch.tools.report.kept import Room
from launch.tools.report.live import LiveRuns
from launch.tools.report.page import write_page
from launch.tools.report.server import make_server
from rlsys.jsonl import json_line
from rlsys.types import Message
from tests.browser import Opened
from tests.fakes.hostile_texts import EVERYTHING
from tests.makers.report_example import example_report, write_run
from tests.paths import ROOT


def finished(folder: Path, seed: int = 0) -> Path:
    run = write_run(folder, steps=30)
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("seed: 0", f"seed: {seed}"))
    (run / "summary.json").write_text(json.dumps({"status": "done", "steps": 30}))
    return run


def crashed(folder: Path) -> Path:
    run = finished(folder)
    (run / "summary.json").unlink()
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 31, "stage": "r')
    with (run / "trajectories/step-000030.jsonl").open("ab") as file:
        file.write(b'{"task": {"task')
    events = [{"time": 2.0, "step": 12, "stage": "rl", "kind": "restart", "who": "rollout:0", "text": "died"}]
    (run / "events.jsonl").write_bytes(b"".join(map(json_line, events)))
    return run


def resumed(folder: Path) -> Path:
    run = finished(folder)
    attempts = [
        {"time": 0.0, "utc": "2026-11-23T02:37:33Z", "from_step": step, "command": ["rlsys"]} for step in (0, 20)
    ]
    (run / "run.json").write_text(json.dumps({"format": 1, "name": "made", "seed": 0, "attempts": attempts}))
    events = [
        {"time": float(step), "step": step, "stage": "rl", "kind": "begin", "from_step": step} for step in (0, 20)
    ]
    (run / "events.jsonl").write_bytes(b"".join(map(json_line, events)))
    return run


def four_seeds(folder: Path) -> list[Path]:
    return [finished(folder / f"seed-{seed}", seed) for seed in range(4)]


def empty(folder: Path) -> Path:
    """Killed before its first step."""
    folder.mkdir()
    (folder / "config.yaml").write_text("recipe: {name: made}\nseed: 0\nstages: [{name: rl, kind: rl}]\n")
    return folder


@pytest.mark.parametrize("kind", [finished, crashed, resumed, four_seeds, empty])
def test_every_kind_of_run_has_a_page(visit: Any, tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    runs = kind(tmp_path / "run")
    report = write_report(runs if isinstance(runs, list) else [runs], tmp_path / "report.html")
    opened = visit((tmp_path / "report.html").as_uri())
    assert opened.texts(".tile .value") == [tile["value"] for tile in report["tiles"]]
    assert opened.texts(".verdict .finding-text") == [run["verdict"]["text"].strip() for run in report["runs"]]
    opened.page.evaluate("document.querySelectorAll('summary').forEach(each => each.click())")
    opened.go("#t")
    opened.wait_text("#found", r"[\d,]+ of [\d,]+")
    opened.go("#t?step=3")
    if kind is not empty:
        opened.wait("#shelf .row").click()
        opened.wait("#episode .card.model")
    assert opened.faults() == []


def write_report(folders: Sequence[Path], path: Path) -> dict[str, Any]:
    runs = [read_directory(folder) for folder in folders]
    episodes = [read_episodes(run) for run in runs]
    report = build_report(runs, episodes)
    write_page(report, episodes, path)
    return report


PICTURES = "RLSYS_REPORT_PICTURES"  # a run directory


RIGHT_WITH_MOST_TURNS = """(() => {
    const worth = place => [asNumber(store.get('correct', place)), store.get('turns', place)];
    const places = [...store.column('step').keys()].filter(place => store.get('play', place) === null);
    const better = (a, b) => worth(b)[0] - worth(a)[0] || worth(b)[1] - worth(a)[1] || a - b;
    return store.id(places.sort(better)[0]);
})()"""


@pytest.mark.skipif(PICTURES not in os.environ, reason=f"{PICTURES} names no run directory: pictures of docs stay")
def test_pictures_for_the_docs(visit: Any, tmp_path: Path) -> None:
    write_report([Path(os.environ[PICTURES])], tmp_path / "report.html")
    opened = visit((tmp_path / "report.html").as_uri())
    episode = opened.page.evaluate(RIGHT_WITH_MOST_TURNS)
    take(opened, "#", "report-first-screen")
    take(opened, f"#t/{episode}", "report-viewer", "#episode .card.model", "log-prob")
    take(opened, f"#g/{episode.rpartition('.')[0]}", "report-group", "#group .sibling")
    assert opened.faults() == []


def take(opened: Opened, link: str, name: str, selector: str = ".chart canvas", colour: str | None = None) -> None:
    opened.go(link)
    opened.wait(selector)
    if colour is not None:
        opened.page.click(f"#episode .choice button:text-is('{colour}')")
        opened.wait(".tokens")
    opened.page.mouse.move(0, 0)
    opened.page.wait_for_timeout(300)
    path = ROOT / "docs/images" / f"{name}.png"
    opened.page.screenshot(path=path)
    assert 10_000 < path.stat().st_size < 250_000


TOKEN = "token-of-this-test"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    run = write_run(tmp_path / "run")

    def report(runs: Sequence[Any], _: object) -> dict[str, Any]:
        return example_report(steps=int(runs[0].rows.step[-1])) | {"title": f"{len(runs[0].rows)} rows"}

    server = make_server(LiveRuns([run], report, Room(10_000)), 0, TOKEN)
    yield run, server.start()
    assert server.stop()


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    answer = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return answer


def test_the_server_answers_those_with_the_link_alone(served: tuple[Path, str]) -> None:
    _, url = served
    address = url.removeprefix("http://")
    status, headers, _ = ask(url, f"/{TOKEN}/")
    assert status == 200 and headers["cache-control"] == "no-store"
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert ask(url, f"/{TOKEN}/", Origin=f"http://{address}")[0] == 200
    assert ask(url, f"/{TOKEN}/", Host=f"localhost:{address.rpartition(':')[2]}")[0] == 200
    refused: list[tuple[str, dict[str, str]]] = [
        ("/", {}),
        ("/wrong/", {}),
        (f"/{TOKEN}", {}),
        (f"/{TOKEN}x/", {}),
        (f"/{TOKEN}/../../etc/passwd", {}),
        (f"/{TOKEN}/data/../config.yaml", {}),
        (f"/{TOKEN}/%2e%2e/config.yaml", {}),
        (f"/{TOKEN}/config.yaml", {}),
        (f"/{TOKEN}/", {"Host": "evil.example"}),
        (f"/{TOKEN}/", {"Host": "[::1"}),
        ("/", {"Host": f"127.0.0.1/{TOKEN}/"}),
        (f"/{TOKEN}/", {"Host": f"127.0.0.1.evil.example:{address.rpartition(':')[2]}"}),
        (f"/{TOKEN}/", {"Origin": "http://evil.example"}),
        (f"/{TOKEN}/", {"Origin": "null"}),
        (f"/{TOKEN}/", {"Origin": "http://127.0.0.1:1"}),
    ]
    assert [
        (path, extra, ask(url, path, **extra)[0]) for path, extra in refused if ask(url, path, **extra)[0] != 403
    ] == []
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(url, f"/{TOKEN}/", method)[0] == 403
    assert ask(url, f"/{TOKEN}/data/0000/index")[0] == 410


def test_the_page_follows_a_run_and_what_a_resume_drops_is_gone(visit: Any, served: tuple[Path, str]) -> None:
    run, url = served
    opened = visit(f"{url}/{TOKEN}/#t")
    opened.requests.clear()  # of its own server: checked below
    opened.page.on(
        "request", lambda request: request.url.startswith(f"{url}/{TOKEN}/") or opened.requests.append(request.url)
    )
    opened.wait_text("#found", "102 of 102")
    opened.page.locator("#shelf .row").first.click()
    opened.wait("#episode .card.model")
    opened.page.click("#episode .choice button:text-is('log-prob')")
    opened.wait(".tokens span")
    opened.go("#t")
    (run / "trajectories/step-000008.jsonl").unlink()
    rows = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(rows[:7]))
    opened.wait_text("#found", "90 of 90")
    opened.wait_text("h1", "7 rows")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(rows[7] + b'{"step": 9, "sta')
    opened.wait_text("h1", "8 rows")
    assert [request for request in opened.requests if not request.startswith(f"{url}/{TOKEN}/")] == []
    assert opened.console == [] and opened.page.evaluate("violations") == []


def test_an_episode_that_goes_on_is_followed_message_by_message(visit: Any, served: tuple[Path, str]) -> None:
    run, url = served

    def show(*messages: tuple[str, str]) -> None:
        pool: Any = SimpleNamespace()
        own: Any = SimpleNamespace(dir=SimpleNamespace(path=run), pool=pool, config=compose("quickstart", []))
        show_playing(own)
        said = tuple(Message(role=role, content=text) for role, text in messages)
        statuses = {"rollout:0": SimpleNamespace(playing=Excerpt(said[:1], said[1:]))}
        pool.shows({**statuses, "rollout:1": SimpleNamespace(playing=None)})

    talk = [("user", f"What is 3 * 9? {EVERYTHING}{'x' * 4000}"), ("assistant", "<calculator>3 * 9</calculator>")]
    show(*talk)
    opened = visit(f"{url}/{TOKEN}/#now")
    assert opened.page.get_attribute("#live", "href") is None
    opened.wait_text("#now .empty", "No episode is being played, or the run has ended.")
    with (run / LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        opened.wait("#now .card.model")
        cards = [card.get_attribute("class") for card in opened.page.locator("#now .card").all()]
        assert cards == ["card prompt", "card model"] and opened.texts("#now .bar b") == ["rollout:0"]
        opened.page.click("#now .card.prompt button")
        for fail in (lambda route: route.abort(), lambda route: route.fulfill(status=503)):
            opened.page.route("**/playing", fail)
            opened.wait("#now .bar .quiet:text-is('the server does not answer')")
            opened.page.unroute("**/playing")
            opened.wait("#now .bar .quiet:has-text('message by message')")
        show(*talk, ("tool", "27"), ("assistant", "<answer>27</answer>"))
        opened.wait("#now .card.model:has-text('<answer>27</answer>')")
        assert opened.page.locator("#now .card.prompt button").count() == 0  # what was opened stays open
        opened.wait("#live[href='#now']:has-text('running')")
    opened.wait("#now .empty")
    assert len(opened.console) >= 2 and all("Failed to load resource" in line for line in opened.console)
    assert opened.page.evaluate("[violations, window.pwned ?? null]") == [[], None]


def test_the_command_prints_its_link_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1)
    command = [sys.executable, "-m", "launch", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        link = process.stdout.readline().split()[-1]
        url, _, token = link.rstrip("/").rpartition("/")
        assert url.startswith("http://127.0.0.1:") and len(token) >= 32
        assert f"ssh -L {url.rpartition(':')[2]}:127.0.0.1:" in process.stdout.readline()
        assert ask(url, f"/{token}/")[0] == 200 and ask(url, "/")[0] == 403
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""
