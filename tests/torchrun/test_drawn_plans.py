"""Plans that nobody thought of: whatever is not refused by name trains as one process does."""

from __future__ import annotations

import pytest
from drawn_plans import Drawn, checked, drawn

from foretell.errors import BadInput
from foretell.runtime.launch import Ranks

COUNT, SEED = 3, 24
SLOW = ("+compiled", "pp4")
"""Parts of plans that take longer than others; they have tests of their own."""


def _ran(ranks: Ranks, one: Drawn) -> bool:
    """Whether a plan ran, and well; none may fail that is not refused."""
    try:
        checked(ranks, one)
    except BadInput as problem:
        assert "runs today" in str(problem), f"{one.model} --plan '{one.plan}': {problem}"
        return False
    except AssertionError as problem:
        raise AssertionError(f"{one.model} --plan '{one.plan}'") from problem
    return True


@pytest.mark.slow
def test_plans_drawn_at_random_train_as_one_process_does(ranks: Ranks) -> None:
    left = COUNT
    for one in drawn(SEED):
        if left and not any(word in one.plan for word in SLOW):
            left -= _ran(ranks, one)
        if not left:
            return
