"""`rlsys data extract`, `solved` and `search`, through the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.cli import run
from launch.data.phrases import Phrases
from tests.fakes.judge_endpoint import scripted
from tests.makers.made import jsonl, records


def taken_out(prompt: str) -> Any:
    for sign, says in (("proof", "\\boxed{}"), ("essay", "no idea"), ("book", (400, {"x": "y"}, "too long"))):
        if sign in prompt:
            return says
    return "The final answer is $$\\boxed{12}$$" if "a dozen" in prompt else "\\boxed{\\frac{1}{2}}"


def test_short_answers_are_extracted_and_what_has_none_is_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "web.jsonl", tmp_path / "short.jsonl"
    jsonl(source, [
        {"question": "How many eggs?", "answer": "That is a dozen."},
        {"question": "Why?", "answer": "A proof."},
        {"prompt": [{"role": "system", "content": "Halve."}, {"role": "user", "content": "One?"}], "answer": "a half"},
        {"question": "Half of one?", "solution": "It is a half.", "answer": "half"},
        {"question": "What of it?", "answer": "An essay."},
        {"question": "All of it?", "answer": "A book."},
    ])  # fmt: skip
    with scripted(taken_out) as endpoint:
        command = ["data", "extract", "--input", str(source), "--output", str(output)]
        command += ["--endpoint", endpoint.url, "--model", "m", "--concurrency", "2"]
        assert run(command) == 0
        assert "3 of 6 questions have a short answer (1 empty box, 1 no box, 1 refused)" in capsys.readouterr().out
        count = len(endpoint.asked)
        assert run(command) == 0  # what was answered is in the cache: only the refused one is asked again
        assert len(endpoint.asked) == count + 1
    assert endpoint.asked[0]["temperature"] == 0 and endpoint.asked[0]["max_tokens"] == 512
    talk = [{"role": "system", "content": "Halve."}, {"role": "user", "content": "One?"}]
    assert any("system: Halve." in str(request["messages"]) for request in endpoint.asked)
    assert records(output) == [
        {"question": "How many eggs?", "answers": ["12"], "solution": "That is a dozen."},
        {"question": "One?", "answers": ["\\frac{1}{2}"], "solution": "a half", "prompt": talk},
        {"question": "Half of one?", "answers": ["\\frac{1}{2}"], "solution": "It is a half."},
    ]
    assert run(["data", "extract", "--input", str(source), "--output", str(output)]) == 2
    assert "expected --endpoint and --model" in capsys.readouterr().err


def test_tasks_of_what_was_kept_come_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = {"task_id": "web.jsonl:1", "question": "How many?", "answers": ["12"], "solution": "A dozen."}
    other = {**task, "task_id": "web.jsonl:2", "question": "Half?"}
    tries, output = tmp_path / "tries.jsonl", tmp_path / "filtered.jsonl"
    jsonl(tries, [{"task": task, "messages": []}, {"task": task, "messages": []}, {"task": other, "messages": []}])
    assert run(["data", "solved", "--input", str(tries), "--output", str(output)]) == 0
    assert "2 tasks of 3 trajectories" in capsys.readouterr().out
    assert records(output) == [task, other]
    jsonl(tries, [{"question": "?"}])
    assert run(["data", "solved", "--input", str(tries), "--output", str(output)]) == 2
    assert 'line 1: no "task"' in capsys.readouterr().err


def test_nearness_is_the_jaccard_index_of_word_triples() -> None:
    phrases = Phrases(["let me check that again", "wait"])
    # let-me-check, me-check-that, check-that-again; the sentence has 4, of which 3 are shared: 3 / 4
    assert phrases.nearest("So let me check that again!", 0.5) == ("let me check that again", 0.75)
    assert phrases.nearest("So let me check that again!", 0.8) is None
    assert phrases.nearest("WAIT...", 1.0) == ("wait", 1.0)
    assert phrases.nearest("nothing alike in here", 0.1) is None


def test_a_corpus_is_searched_for_phrases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, output = tmp_path / "pages.jsonl", tmp_path / "found.jsonl"
    jsonl(corpus, [
        {"text": "x = 4. Does that make sense? I think so.\nwait, does that check out"},
        {"id": "2", "contents": "Nothing here."},
    ])  # fmt: skip
    assert run(["data", "search", "--corpus", str(corpus), "--output", str(output)]) == 0
    out = capsys.readouterr().out
    assert "1  Does that make sense?\n" in out and "rlsys: 2 sentences" in out
    assert [(hit["document"], hit["sentence"], hit["jaccard"]) for hit in records(output)] == [
        ("pages.jsonl:1", "Does that make sense?", 1.0),
        ("pages.jsonl:1", "wait, does that check out", 1.0),
    ]
    jsonl(corpus, [{"text": "Does that make sense?"}, {"title": "no text"}])
    written = output.read_bytes()
    assert run(["data", "search", "--corpus", str(corpus), "--output", str(output)]) == 2
    assert "pages.jsonl line 2: expected a text" in capsys.readouterr().err
    assert output.read_bytes() == written  # what was found before stays until all is found
    (tmp_path / "none.txt").write_text("# nothing\n")
    for more, part in (
        (["--phrases", str(tmp_path / "none.txt")], "--phrases: no phrase in it"),
        (["--near", "0"], "--near 0.0: expected above 0"),
    ):
        assert run(["data", "search", "--corpus", str(corpus), *more]) == 2
        assert part in capsys.readouterr().err
