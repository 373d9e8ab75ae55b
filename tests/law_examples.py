"""How many examples a law has, and what they reached; `tests/conftest.py` fails a law that checked too little.

An example that a law has nothing to say of is no example: `assume` draws another one. Where a law says one thing or
another, `reached` notes which, and the mark says how often each must be: `@pytest.mark.reaches(refused=3, kept=5)`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from hypothesis import settings

DEFAULT: Final = 20
"""Examples of a law that names no number, where no profile says otherwise."""

REACHED: Counter[str] = Counter()
"""Of the law that is being tried."""


def examples(count: int) -> settings:
    """So many examples by default, and under other profiles in proportion."""
    return settings(max_examples=max(1, count * settings.default.max_examples // DEFAULT))


def reached(branch: str) -> None:
    REACHED[branch] += 1
