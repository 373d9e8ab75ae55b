"""The first cause of a run's end, by how each rank ended: not by who complained first."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from foretell.runtime.assignment import Failure
from foretell.runtime.guard import CONSEQUENCE, Guard
from foretell.runtime.journal import NOTE

MISSED = Failure(CONSEQUENCE, "rank ? ended with an error: Connection closed by peer", at=1.0)


def ended(folder: Path, failed: dict[int, int], still_there: tuple[int, ...] = ()) -> Guard:
    """Ranks 0 to 3 that ended in this order with these codes."""
    found = Guard({100 + rank: rank for rank in range(4)}, folder, 300.0)
    found.failed, found.ended = failed, still_there
    return found


@pytest.mark.parametrize("code", [7, 1, 0, -9, -11, -15])
def test_who_ended_without_a_word_is_the_cause_though_others_were_heard_first(code: int, tmp_path: Path) -> None:
    guard = ended(tmp_path, {0: 1, 1: 1, 2: code})
    assert guard.cause({0: MISSED, 1: MISSED}).what.startswith("rank 2 ")


def test_an_error_of_a_rank_comes_before_those_that_miss_it_and_the_earlier_of_two(tmp_path: Path) -> None:
    guard = ended(tmp_path, {0: 1, 1: 1, 3: 1})
    later, first = Failure("BadInput", "rank 1: later", at=3.0), Failure("BadInput", "rank 3: first", at=2.0)
    assert guard.cause({0: MISSED, 1: later, 3: first}).what == "rank 3: first"


def test_a_rank_that_gloo_aborted_is_blamed_only_where_nobody_else_can_be(tmp_path: Path) -> None:
    abort = -signal.SIGABRT
    own = Failure("BadInput", "rank 1: no bread in the house", at=2.0)
    assert ended(tmp_path, {0: abort, 1: 1}).cause({1: own}).what == own.what
    assert ended(tmp_path, {0: abort, 2: 7}).cause({}).what.startswith("rank 2 ended with exit code 7")
    assert ended(tmp_path, {0: 1, 3: abort}).cause({0: MISSED}).what == "rank 3 was ended by signal 6 (SIGABRT)"


def test_a_rank_that_never_ended_is_the_cause_of_those_that_gave_up_waiting(tmp_path: Path) -> None:
    for rank, note in {2: "5 forward 9.0", 3: "4 backward 8.0"}.items():
        (tmp_path / f"at-{rank}").write_text(note.ljust(NOTE))
    found = ended(tmp_path, {0: 1, 1: 1}, (2, 3)).cause({0: MISSED, 1: MISSED})
    assert found.what == "rank 3 did not go on, and the others gave up waiting for it"
    assert found.where == "step 4, backward"


def test_where_all_miss_each_other_the_first_one_is_told(tmp_path: Path) -> None:
    first = Failure(CONSEQUENCE, "rank 1 lost rank 0", at=0.5)
    assert ended(tmp_path, {0: 1, 1: 1}).cause({0: MISSED, 1: first}).what == first.what
