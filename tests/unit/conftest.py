"""The command line, run in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from foretell.cli import main


class Ran(NamedTuple):
    """What a command did: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def foretell(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Runs the command with these arguments, after those that the test's file always gives (`ALWAYS`)."""
    always: tuple[str, ...] = getattr(request.module, "ALWAYS", ())

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["foretell", *always, *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
