"""A graph for another number of samples is the graph of the model loaded with it."""

from __future__ import annotations

import pytest

from foretell.model import zoo
from foretell.model.resize import with_samples
from foretell.model.source import load


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(zoo.names()))
def test_resized_is_loaded(model: str) -> None:
    assert with_samples(load(model, 4), 12) == load(model, 12)
