"""How many constants were chosen with measured runs in view: each has a source, and none belongs to one run."""

from __future__ import annotations

from collections import Counter

import pytest

from foretell.validation.constants import fitted
from foretell.validation.published import files
from foretell.validation.study import read

MOST = {"kernels": 12, "bands": 23}
"""Of these there are no more without a word here.

Of bands there are 8 reasons to doubt a prediction with their stretch, 5 to doubt an anchored one with theirs, and 8
effects that a measured run carries over to others (`oracle/carried.py`), each learnt with sources left out.
"""

MOST_OF_TRAINERS = 110


def test_every_fitted_constant_has_a_source() -> None:
    for constant in fitted():
        assert len(constant.source.split()) >= 4, constant


def test_they_are_few() -> None:
    counts = Counter(constant.owner.split()[0] for constant in fitted())
    for owner, most in MOST.items():
        assert 0 < counts[owner] <= most
    assert counts["trainer"] <= MOST_OF_TRAINERS


@pytest.mark.slow
def test_no_trainer_has_more_of_them_than_runs() -> None:
    """A constant that belongs to one run would need a trainer of its own."""
    runs = Counter(row.trainer for path in files() for row in read(path).rows)
    counts = Counter(constant.owner.split()[1] for constant in fitted() if constant.owner.startswith("trainer"))
    for name, count in counts.items():
        if runs[name]:
            assert count <= runs[name], name
