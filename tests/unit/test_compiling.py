"""Compiled kernels that later processes find on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import compiled_answer
from foretell.compiling import available

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not available(), reason="no compiler")]


def asked(folder: Path, *words: str) -> dict[str, Any]:
    """What a process says whose kernels are kept in a folder."""
    kept = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, compiled_answer.__file__, *words]
    ran = subprocess.run(command, env=kept, capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
    return json.loads(ran.stdout)


def test_kernels_that_are_found_answer_as_those_just_compiled(tmp_path: Path) -> None:
    first, second = asked(tmp_path, "answer"), asked(tmp_path, "answer")
    assert first["made"] and second["found"] and not second["made"]
    assert first["said"] == second["said"] == compiled_answer.answer()


def test_kernels_that_two_processes_compiled_get_on_in_a_third(tmp_path: Path) -> None:
    """Names on disk have a number that each process counts anew: arrays of whole numbers once were real ones."""
    real, whole, both = (asked(tmp_path, *words) for words in (("zeros",), ("whole_zeros",), ("zeros", "whole_zeros")))
    assert (real["said"], whole["said"], both["said"]) == (["float64"], ["int64"], ["float64", "int64"])
    assert real["made"] and whole["made"] and both["found"] and not both["made"]


def test_kernels_that_are_cut_off_are_made_anew(tmp_path: Path) -> None:
    first = asked(tmp_path, "zeros")
    kept = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert {path.suffix for path in kept} == {".nbi", ".nbc"}
    for suffix in (".nbc", ".nbi"):
        for path in (path for path in kept if path.suffix == suffix):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        again = asked(tmp_path, "zeros")
        assert again["made"] and again["said"] == first["said"]
        assert asked(tmp_path, "zeros")["found"]


def test_where_nothing_is_to_be_compiled_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert asked(tmp_path, "zeros", "whole_zeros")["said"] == ["float64", "int64"]
