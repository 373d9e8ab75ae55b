"""What is counted of the collectives of a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from foretell.errors import BadInput
from foretell.runtime.counting import Counting

MESH: Any = SimpleNamespace(groups=dict)


def test_a_collective_that_nobody_knows_stops_the_count() -> None:
    with pytest.raises(BadInput, match="scatter_ is no collective"):
        Counting(MESH)._count("scatter_", ())  # pyright: ignore[reportPrivateUsage]
