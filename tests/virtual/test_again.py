"""Runs that are played again, from what ranks wrote down: no processes here."""

from __future__ import annotations

import msgspec
import pytest

from answers import documented
from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.methods.choice import method
from foretell.virtual.again import again, played

ASKED = Assignment(
    model="lenet", plan="local2:tau4", method="local:tau=4", batch=4, steps=5, dropped=1, optimizer="sgd", rate=0.05
)


def _losses(assignment: Assignment) -> list[float]:
    found = method(assignment.setting.plan, assignment.method)
    assert found is not None
    return played(assignment, found, 2)[1]


def test_copies_that_are_pushed_now_and_then_are_played_again() -> None:
    """Six gradients of each worker, and one push."""
    losses = _losses(ASKED)
    reports = [Report(rank=0, losses=losses, arrivals=[1, 0]), Report(rank=1, losses=losses)]
    found = again(ASKED, reports, {})
    assert found.apart == 0.0
    documented("simulate --record", msgspec.json.encode(found))
    assert len(set(losses)) > 1


def test_an_order_that_was_not_written_down_is_not_made_up() -> None:
    asked = msgspec.structs.replace(ASKED, plan="ps2:async", method="easgd:tau=4")
    reports = [Report(rank=0, losses=[1.0] * 6, arrivals=[1, 0]), Report(rank=1, losses=[1.0] * 6)]
    with pytest.raises(BadInput, match="not every gradient was pushed"):
        again(asked, reports, {})


def test_orders_that_do_not_fit_are_told() -> None:
    """The server heard a worker less often than that worker pushed."""
    losses = _losses(ASKED)
    reports = [Report(rank=0, losses=losses, heard=[7], arrivals=[1, 0]), Report(rank=1, losses=losses)]
    with pytest.raises(BadInput, match="orders do not fit: worker 0 of 2 stops before its gradient"):
        again(ASKED, reports, {})


def test_a_run_on_gpus_is_not_played() -> None:
    with pytest.raises(BadInput, match="a run on GPUs"):
        again(msgspec.structs.replace(ASKED, device="cuda"), [Report(rank=0), Report(rank=1)], {})


def test_a_rate_that_grows_with_the_batch_is_played() -> None:
    grown = msgspec.structs.replace(ASKED, rate=0.025, rate_batch=2)
    assert _losses(grown) == _losses(ASKED)
