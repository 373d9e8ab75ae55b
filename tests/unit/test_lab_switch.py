"""The switch of the lab is run only as it was compiled here: what somebody else put in its place is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.lab import compiler

PLANTED = b"#!/bin/sh\ntouch planted\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """The switch of a process that starts now, by a compiler that takes the source for a program."""
    tool = tmp_path / "cc"
    tool.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncat "$3" > "$2"\necho x >> "$0.runs"\n')
    tool.chmod(0o700)
    monkeypatch.setenv("CC", str(tool))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return compiler.program.__wrapped__


def runs(folder: Path) -> int:
    """How often it was compiled."""
    return len((folder / "cc.runs").read_text().split())


def test_it_is_compiled_once(program: Callable[[], Path], tmp_path: Path) -> None:
    first = program()
    assert program() == first and runs(tmp_path) == 1
    assert first.read_bytes() == compiler.SOURCE.read_bytes()
    assert [path.stat().st_mode & 0o077 for path in (first, first.parent)] == [0, 0]


def planted(file: Path) -> None:
    file.write_bytes(PLANTED)


def planted_alone(file: Path) -> None:
    planted(file)
    compiler._digest_of(file).unlink()


def open_to_others(file: Path) -> None:
    file.chmod(0o777)


def linked(file: Path) -> None:
    other = file.parent.parent / "elsewhere"
    other.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(other)


@pytest.mark.parametrize("somebody", [planted, planted_alone, open_to_others, linked])
def test_another_in_its_place_is_compiled_anew(
    program: Callable[[], Path], somebody: Callable[[Path], None], tmp_path: Path
) -> None:
    file = program()
    somebody(file)
    assert program() == file and runs(tmp_path) == 2
    assert file.read_bytes() == compiler.SOURCE.read_bytes() and not file.is_symlink()
    assert program() == file and runs(tmp_path) == 2


def test_one_that_is_planted_before_the_first_time(program: Callable[[], Path], tmp_path: Path) -> None:
    file = program()
    compiler._digest_of(file).unlink()
    planted(file)
    assert program().read_bytes() == compiler.SOURCE.read_bytes()


def test_a_folder_that_others_may_write_to_is_closed(program: Callable[[], Path], tmp_path: Path) -> None:
    (tmp_path / "cache" / "foretell").mkdir(parents=True)
    (tmp_path / "cache" / "foretell").chmod(0o777)
    assert program().parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_somebody_else_is_not_used(
    program: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where `sudo` kept the home of the one who typed it."""
    theirs = program()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    ours = program()
    assert ours.parent != theirs.parent and ours.read_bytes() == compiler.SOURCE.read_bytes()
