"""States that ranks share out weight by weight, as PyTorch does."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretell.program.whole_states import fullest_share

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch scripts a function while this is imported
    from torch.distributed.optim import ZeroRedundancyOptimizer


def test_the_rank_with_the_table_has_it_whole_by_hand() -> None:
    assert fullest_share(((10, 1), (1, 4)), 2) == 10 / 14
    assert fullest_share(((3, 1), (2, 2), (1, 1)), 2) == 1 / 2


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 6))
def test_shares_are_those_of_pytorch(sizes: list[int], ranks: int) -> None:
    own = object.__new__(ZeroRedundancyOptimizer)
    own.world_size, own._partition_parameters_cache = ranks, []
    own.param_groups = [{"params": [torch.empty(size) for size in sizes]}]
    parts = own._partition_parameters()
    most = max(sum(one.numel() for group in part for one in group["params"]) for part in parts)
    counted = tuple((size, sizes.count(size)) for size in sorted(set(sizes)))
    assert fullest_share(counted, ranks) == pytest.approx(most / sum(sizes))
