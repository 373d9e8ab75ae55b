"""One process that brings up ranks for every test here: torch is imported once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from foretell.runtime.launch import Ranks
from traced_here import traced_here

__all__ = ["traced_here"]


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    with Ranks() as found:
        yield found
