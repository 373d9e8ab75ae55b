"""Tests that need emulated hosts; where rights are missing they say which."""

from __future__ import annotations

import pytest

from foretell.lab import rights


@pytest.fixture(scope="session", autouse=True)
def emulated() -> None:
    missing = [what for what, _ in rights.missing()]
    if missing:
        pytest.skip(f"no emulated hosts here: {'; '.join(missing)}")
