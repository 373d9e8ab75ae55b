"""One torch for all tests of this folder."""

from collections.abc import Iterator

import pytest

from judge.torch_side import Judge
from traced_here import traced_here

__all__ = ["traced_here"]


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge() as started:
        yield started
