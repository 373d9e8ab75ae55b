"""Compiled layers train as they do eagerly. The backend needs no compiler of C++: it shows what torch follows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from equalities import LLAMA, alone, assert_same_collectives, assert_same_values, assignment, double, trained_as

from foretell.runtime.launch import Ranks

ONE = LLAMA.replace("layers=2", "layers=1")
"""A second layer would be compiled once more, by every rank, and show nothing else."""


@pytest.fixture(scope="module")
def compiling() -> Iterator[Ranks]:
    """Ranks that find the backend in their environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETELL_COMPILE_BACKEND", "aot_eager")
        with Ranks() as found:
            yield found


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["dp2 +compiled", "tp2 +compiled"])
def test_compiled_layers_train_alike(ranks: Ranks, compiling: Ranks, plan: str) -> None:
    found = trained_as(compiling, assignment(double(ONE), plan))
    assert_same_values(found, alone(ranks, ONE))
    assert_same_collectives(ONE, plan, found.reports)
