"""What nobody foresaw: an exit code of its own, a short message, a file to attach; and streams that are not there."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretell.cli.command
from foretell.cli.answers import FailureAnswer
from foretell.cli.crash import report
from foretell.cli.main import main
from foretell.version import __version__

SECRET = "a-token-that-nobody-may-see"
FORETELL = f"{sys.executable} -m foretell"


def _crash(monkeypatch: pytest.MonkeyPatch, problem: Exception, *arguments: str) -> None:
    def cli(**_: Any) -> None:
        raise problem

    monkeypatch.setattr(foretell.cli.command, "cli", cli)
    monkeypatch.setattr(sys, "argv", ["foretell", *arguments])
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    monkeypatch.delenv("FORETELL_TRACEBACK")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70


@pytest.mark.parametrize("problem", [KeyError("layers"), MemoryError(), RecursionError("too deep"), AssertionError()])
def test_a_crash_is_a_message_and_a_file(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _crash(monkeypatch, problem, "predict", "my model.json", "--batch", "8")
    (report,) = tmp_path.iterdir()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"foretell: foretell predict crashed ({type(problem).__name__}): a fault of foretell")
    assert str(report) in said.err.replace("\n         ", "")
    assert "Traceback" not in said.err
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text()
    assert __version__ in text and "'my model.json' --batch 8" in text and "Traceback (most recent call last)" in text
    assert SECRET not in text + said.err


def test_a_crash_is_told_to_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _crash(monkeypatch, ZeroDivisionError(), "predict", "--json")
    error = msgspec.json.decode(capsys.readouterr().out, type=FailureAnswer).error
    assert "ZeroDivisionError" in error.what
    assert Path(error.where).is_file()


def test_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    _crash(monkeypatch, KeyError("layers"), "predict")
    assert "FORETELL_TRACEBACK=1 shows the traceback" in " ".join(capsys.readouterr().err.split())


def test_those_who_mend_it_see_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def cli(**_: Any) -> None:
        raise KeyError("layers")

    monkeypatch.setattr(foretell.cli.command, "cli", cli)
    monkeypatch.setattr(sys, "argv", ["foretell", "predict"])
    monkeypatch.setenv("FORETELL_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main()


def _shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line.replace("foretell ", f"{FORETELL} ")],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("question", ["list devices", "list devices --json"])
def test_an_output_that_is_closed_is_a_message(question: str) -> None:
    ran = _shell(f"foretell {question} >&-")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("foretell: cannot write the answer")
    assert len(ran.stderr.splitlines()) == 1


def test_messages_for_nobody_do_not_land_in_files(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    ran = _shell(f"foretell predict lenet --on 1xh100 --plan dp1 --batch 8 --keep {kept} 2>&- 0<&-")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(kept.read_text())["kind"] == "prediction"
    assert _shell("foretell predict nobody 2>&- >&-").returncode == 2


def test_arguments_are_utf8() -> None:
    ran = _shell(r"foretell analyze $'caf\xe9.json' --json")
    assert ran.returncode == 2
    assert "argument 2 has bytes that are not UTF-8" in ran.stderr
    assert json.loads(ran.stdout)["error"]["where"] == r"caf\xe9.json"


def test_a_terminal_with_few_letters_gets_what_it_can_show() -> None:
    question = "predict lenet --on 1xh100 --plan dp1 --batch 8"
    assert _shell(f"foretell {question}", PYTHONIOENCODING="ascii").returncode == 0


@pytest.mark.parametrize("words", [("--token", "open-sesame"), ("--token=open-sesame",)])
def test_a_token_that_was_typed_is_in_no_report(words: tuple[str, ...]) -> None:
    text = report(KeyError("layers"), ["foretell", "serve", *words, "--port", "8000"])
    assert "open-sesame" not in text and "--token" in text and "--port 8000" in text
