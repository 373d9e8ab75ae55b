"""Predictions by copies of this process: the same with any number of them."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from foretell.errors import BadInput
from foretell.forked_workers import ForkedWorkers, WorkerFailed
from foretell.validation import published, sides, tried
from foretell.validation.in_view import slots_of
from foretell.validation.left_out import misses_of, prepared
from foretell.validation.rows_left_out import as_shipped, times
from foretell.validation.sides import predicted
from foretell.validation.study import read
from foretell.validation.tried import shared_out


def _squared(number: int) -> Any:
    if number < 0:
        raise ValueError(f"{number} is negative")
    if number == 99:
        raise BadInput("99 is too much", where="here", fix="98")
    if number == 98:
        os.kill(os.getpid(), signal.SIGKILL)
    return (lambda: None) if number == 97 else number**2


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_answers_come_in_the_order_of_the_questions(copies: int):
    done: list[int] = []
    with ForkedWorkers(_squared, copies) as workers:
        assert workers.any_of(range(7), done.append) == [0, 1, 4, 9, 16, 25, 36]
        assert workers.any_of([]) == []
        numbers = list(range(workers.count))
        assert workers.each_of(numbers) == [number**2 for number in numbers]
    assert sorted(done) == list(range(7))


def test_what_fails_in_a_copy_is_told():
    with ForkedWorkers(_squared, 2) as workers, pytest.raises(WorkerFailed, match="-3 is negative"):
        workers.any_of([1, -3])


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")
@pytest.mark.parametrize(("question", "said"), [(98, "ended without an answer"), (97, "failed: .*pickle")])
def test_a_copy_that_ends_or_cannot_send_is_told(question: int, said: str):
    with ForkedWorkers(_squared, 2) as workers:
        with pytest.raises(WorkerFailed, match=said):
            workers.any_of([question])
        if question == 98:
            with pytest.raises(WorkerFailed, match=said):
                workers.each_of([1, 2])


@pytest.mark.parametrize("copies", [1, 2])
def test_bad_input_is_the_same_error_with_any_number_of_copies(copies: int):
    with ForkedWorkers(_squared, copies) as workers, pytest.raises(BadInput, match="too much") as problem:
        workers.any_of([99])
    assert (problem.value.where, problem.value.fix) == ("here", "98")


def test_runs_are_predicted_alike_by_any_number_of_copies(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sides, "LEAST", 0)
    monkeypatch.setattr(sides, "TAKEN", 2)
    study = read(published.FOLDER / "vtrain_multi.csv")
    asked = [(study, study.rows[::9])]
    alone, shared = (predicted(asked, again=True, copies=copies) for copies in (1, 2))
    assert alone == shared
    assert any(one.seen != one.without for one in alone[0])


def test_rows_of_two_tables_of_one_source_are_two_runs():
    """vTrain counts the rows of each of its tables from 1."""
    found = predicted(
        [(study, study.rows[:2]) for study in map(read, published.files("vtrain_single", "vtrain_multi"))]
    )
    runs = prepared(("vtrain", one.seen) for own in found for one in own)
    assert len({one.row.id for one in runs}) == 2 and len({one.name for one in runs}) == 4


def test_constants_are_tried_alike_by_any_number_of_copies(monkeypatch: pytest.MonkeyPatch):
    """vTrain's rows, under a constant that it was in view of."""
    study = read(published.FOLDER / "vtrain_multi.csv")
    (found,) = predicted([(study, study.rows[::9])])
    runs = prepared(("vtrain", one.seen) for one in found)
    slot = next(slot for slot in slots_of("vtrain") if slot.key == "gradients.rate")
    ways = [{slot: times(slot, as_shipped(slot), by)} for by in (0.5, 1.0, 2.0)]
    found_by: list[list[dict[str, float]]] = []
    for copies in (1, 2):
        monkeypatch.setattr(tried, "_LOGS", {})
        with shared_out(runs, copies):
            found_by.append(misses_of(runs, "vtrain", ways))
    assert found_by[0] == found_by[1]
    assert len({repr(way) for way in found_by[0]}) == len(ways)
