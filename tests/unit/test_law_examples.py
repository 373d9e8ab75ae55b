"""A law that checked too little fails, whatever it found out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

LAWS = """
import pytest
from hypothesis import assume, given, strategies as st
from law_examples import reached

@given(st.integers(0, 10**6))
def test_enough(number):
    assume(number % 3)

@given(st.booleans())
def test_all_there_are(truth):
    pass

SEEN = set()

@given(st.integers(0, 10**6))
def test_too_little(number):
    assume(len(SEEN) < 9 or number in SEEN)
    SEEN.add(number)

@pytest.mark.reaches(large=3, small=3)
@given(st.integers(0, 10**6))
def test_both_branches(number):
    reached("large" if number % 2 else "small")

@pytest.mark.reaches(large=3, small=3)
@given(st.integers(0, 10**6))
def test_one_branch(number):
    reached("small")
"""


def test_a_law_that_checked_too_little_fails(tmp_path: Path) -> None:
    (tmp_path / "test_laws.py").write_text(LAWS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = reaches\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "-rfp"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300).stdout
    outcomes = [line.split()[:2] for line in told.splitlines() if line.startswith(("PASSED ", "FAILED "))]
    assert {name.partition("::")[2]: outcome for outcome, name in outcomes} == {
        "test_enough": "PASSED",
        "test_all_there_are": "PASSED",
        "test_too_little": "FAILED",
        "test_both_branches": "PASSED",
        "test_one_branch": "FAILED",
    }
