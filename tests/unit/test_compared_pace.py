"""A run whose gradients were made to take a time is compared with a prediction that waits as long."""

from __future__ import annotations

import msgspec
import pytest

from foretell.hardware.this_machine import processor
from foretell.learning.tempo import Tempo
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import foreseen

FREE = Assignment(model="lenet", plan="ps2:async", batch=8, device="cpu")


def test_a_pace_is_predicted() -> None:
    free = foreseen(FREE, processor(2), "none")
    paced = foreseen(msgspec.structs.replace(FREE, tempo=Tempo(0.4)), processor(2), "none")
    wait = paced.breakdown["other"] - free.breakdown.get("other", 0.0)
    gradient = sum(paced.breakdown.get(name, 0.0) for name in ("input", "forward", "backward", "host"))
    assert gradient + wait == pytest.approx(0.4)
    assert paced.step_seconds == pytest.approx(free.step_seconds + wait) == pytest.approx(sum(paced.breakdown.values()))
    assert paced.bottlenecks[0].name == "pace" and "400 ms by waiting" in paced.bottlenecks[0].why


def test_a_pace_that_computing_does_not_keep_changes_nothing() -> None:
    assert foreseen(msgspec.structs.replace(FREE, tempo=Tempo(1e-9)), processor(2), "none") == foreseen(
        FREE, processor(2), "none"
    )


def test_stragglers_make_the_mean_longer() -> None:
    assert Tempo(0.1, often=0.1, times=5.0).mean == pytest.approx(0.14)
