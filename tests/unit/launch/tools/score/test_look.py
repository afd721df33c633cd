"""`rlsys data look`: rows as the policy sees them, and what became of each column."""

from pathlib import Path

import pytest

from launch.cli import run
from tests.makers.made import jsonl
from tests.makers.played import tokenizer_in

COLUMNS = ("env.columns.question=instruction", "env.columns.answer=output")


def looked(capsys: pytest.CaptureFixture[str], source: Path, *more: str) -> tuple[int, str, str]:
    code = run(["data", "look", str(source), *more])
    return code, *capsys.readouterr()


def test_columns_of_other_names_are_told_with_what_they_became(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("instruction,output,level\n" + "".join(f"{n} + 1?,{n + 1},easy\n" for n in range(40)))
    code, out, _ = looked(capsys, path, *COLUMNS, "--rows", "2")
    assert (
        code == 0 and "question (from instruction), answer (from output)" in out and "kept with the task: level" in out
    )
    assert out.count("user ") == out.count("answers ") == 2
    assert "40 tasks, 24 to train on, 16 held out" in out
    code, _, err = looked(capsys, path)
    assert code == 2 and "Fields found: instruction, level, output" in err and "env.columns=" in err


def test_rows_with_messages_are_played_as_prompts_in_the_template_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tokenizer_in(tmp_path, ["Be brief. 0 + 1?"] * 4, ())
    rows = [{"prompt": [{"role": "user", "content": f"{n} + 1?"}], "answer": str(n + 1)} for n in range(4)]
    path = Path(jsonl(tmp_path / "rows.jsonl", rows))
    code, out, _ = looked(capsys, path, f"model.path={model}", "env.system=Be brief.", "--rows", "1", "--split", "all")
    assert code == 0 and "read, as prompts: prompt, answer" in out and "tokens" in out
    assert "Be brief." in out and " + 1?" in out and "think step by step" not in out.lower()
    renamed = Path(jsonl(tmp_path / "x: y #1.jsonl", [{"chat": row["prompt"], "key": row["answer"]} for row in rows]))
    columns = ("env.columns.prompt=chat", "env.columns.answer=key")
    code, out, _ = looked(capsys, renamed, *columns, "--rows", "1")
    assert code == 0 and "read, as prompts: prompt (from chat)" in out and "think step" not in out.lower()
    code, _, err = looked(capsys, path, "model.path=nobody/never-fetched")
    assert code == 2 and "model.path='nobody/never-fetched'" in err


def test_what_cannot_be_shown_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(jsonl(tmp_path / "rows.jsonl", [{"question": "1?", "answer": "2"}, {"question": "2?"}]))
    for source, more, line in (
        (tmp_path / "gone.jsonl", (), "cannot be read"),
        (path, (), "rows.jsonl line 2"),
        (path, ("--rows", "0"), "--rows 0: expected at least 1"),
        (path, ("env.colums.question=a",), "env.colums.question: unknown key"),
    ):
        code, out, err = looked(capsys, source, *more)
        assert (code, out, err.count("\n")) == (2, "", 1) and line in err
