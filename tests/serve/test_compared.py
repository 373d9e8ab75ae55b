"""What is said of two predictions: it must not contradict their figures."""

from __future__ import annotations

import msgspec
import pytest

import foretell
from foretell.oracle.predict import Prediction
from foretell.serve.calls.compare import sentence


@pytest.fixture(scope="module")
def one() -> Prediction:
    return foretell.predict("lenet", "2xh100", "dp2", 8)


def changed(found: Prediction, batch: int = 0, **parts: float) -> Prediction:
    """The same step with other parts."""
    step, batch = sum(parts.values()), batch or found.batch
    return msgspec.structs.replace(
        found, breakdown=parts, step_seconds=step, batch=batch, samples_per_second=batch / step
    )


def test_equal_plans_are_equal(one: Prediction) -> None:
    assert sentence(one, one) == "Both are as fast; the second takes as much memory a GPU."


def test_what_does_not_fit_is_said_of_equal_ones_too(one: Prediction) -> None:
    large = msgspec.structs.replace(one, fits=False)
    assert sentence(one, large).endswith("The second does not fit.")
    assert sentence(large, large).endswith("The first and the second do not fit.")


def test_the_reason_goes_the_way_of_the_whole(one: Prediction) -> None:
    """The largest change is one part, 4 s more; that the step is shorter comes from two others."""
    before = changed(one, forward=5.0, backward=5.0, optimizer=1.0)
    after = changed(one, forward=2.0, backward=2.0, optimizer=5.0)
    assert "1.22 times as fast" in sentence(before, after)
    assert "forward: 3 s less a step" in sentence(before, after)
    assert "slower" in sentence(after, before) and "forward: 3 s more a step" in sentence(after, before)


def test_of_other_batches_the_reason_is_of_a_sample(one: Prediction) -> None:
    before, after = changed(one, forward=4.0), changed(one, batch=2 * one.batch, forward=6.0)
    assert f"forward: {1e3 * (4 / one.batch - 6 / 2 / one.batch):g} ms less a sample" in sentence(before, after)
