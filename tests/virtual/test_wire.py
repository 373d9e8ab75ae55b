"""What real processes send of a gradient: the numbers of virtual time, in the bytes that the oracle prices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.learning.compressor import Compressor, Sender
from foretell.learning.members import COMPRESSORS, member, of_policy
from foretell.learning.vector import Shapes, pieces, size
from foretell.plan.policies.compression import Compression
from foretell.plan.text import parse
from law_examples import examples

WRITTEN = list(COMPRESSORS)
POLICIES = (
    *("fp16", "int8", "1bit", "ternary", "topk0.01", "topk0.3", "powersgd1", "powersgd3", "qsgd1", "qsgd7"),
    *("dgc0.1", "threshold0.01", "threshold0.3", "factors1", "factors4"),
)
SHAPES = st.lists(
    st.lists(st.integers(1, 12), max_size=3).map(tuple), min_size=1, max_size=4
).map(tuple)  # fmt: skip
FEW = examples(15)


def gradient(shapes: Shapes, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(size(shapes)).astype(np.float32)


@FEW
@given(shapes=SHAPES, seed=st.integers(0, 999))
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_read_is_what_virtual_time_says_arrives(name: str, shapes: Shapes, seed: int) -> None:
    one, vector = member(COMPRESSORS, Compressor, name)(), gradient(shapes, seed)
    wire = one.packed(vector, shapes, np.random.default_rng(seed))
    arrives = one.lossy(vector, shapes, np.random.default_rng(seed))
    np.testing.assert_allclose(one.opened(wire, shapes), arrives, rtol=1e-5, atol=1e-5)
    assert wire.dtype == np.uint8
    assert len(wire) == one.size(arrives, shapes)


@FEW
@given(shapes=SHAPES, seed=st.integers(0, 999))
@pytest.mark.parametrize("text", POLICIES)
def test_bytes_are_those_that_the_oracle_prices(text: str, shapes: Shapes, seed: int) -> None:
    policy = parse(f"dp2 +compress:{text}").policy(Compression)
    compressor = of_policy(policy)
    assert compressor is not None
    wire = compressor.packed(gradient(shapes, seed), shapes, np.random.default_rng(0))
    dense = [len(shape) == 2 for shape in shapes]
    priced = [
        policy.payload(size((shape,)), shape[0] if shape else 1, 4, two)
        for shape, two in zip(shapes, dense, strict=True)
    ]
    assert len(wire) == sum(priced)


@FEW
@given(rows=st.integers(1, 30), columns=st.integers(1, 30), samples=st.integers(1, 5), seed=st.integers(0, 999))
def test_factors_of_a_sum_over_so_many_samples_lose_nothing(rows: int, columns: int, samples: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    summed = draws.standard_normal((rows, samples)) @ draws.standard_normal((samples, columns))
    one, shapes = member(COMPRESSORS, Compressor, "factors")(samples=samples), ((rows, columns), (rows,))
    vector = np.concatenate([summed.ravel(), draws.standard_normal(rows)]).astype(np.float32)
    np.testing.assert_allclose(one.opened(one.packed(vector, shapes, draws), shapes), vector, rtol=1e-4, atol=1e-4)


@FEW
@given(shapes=SHAPES, seed=st.integers(0, 999), share=st.floats(0.01, 1.0))
def test_a_share_passes_the_threshold_of_each_tensor(shapes: Shapes, seed: int, share: float) -> None:
    one, vector = member(COMPRESSORS, Compressor, "threshold")(share=share), gradient(shapes, seed)
    arrives = one.lossy(vector, shapes, np.random.default_rng(0))
    for where, piece in pieces(vector, shapes):
        kept = arrives[where]
        assert np.count_nonzero(kept) == min(piece.size, math.ceil(piece.size * share))
        assert len({abs(value) for value in kept if value}) == 1
        assert (kept * piece.ravel() >= 0).all()
        assert (np.abs(kept) <= np.abs(piece.ravel())).all()


@pytest.mark.parametrize("name", [name for name in WRITTEN if member(COMPRESSORS, Compressor, name).feedback])
def test_who_writes_remembers_what_was_lost(name: str) -> None:
    shapes: Shapes = ((6, 20), (6,))
    sender = Sender(member(COMPRESSORS, Compressor, name)(), shapes, np.random.default_rng(0))
    meant, read = np.zeros(size(shapes)), np.zeros(size(shapes))
    for seed in range(20):
        one = gradient(shapes, seed)
        meant += one
        read += sender.read(sender.write(one))
    if name != "dgc":  # whose momentum goes out beside the gradient
        np.testing.assert_allclose(read + sender.owed, meant, atol=1e-4)


def test_no_policy_is_no_compressor() -> None:
    assert of_policy(Compression()) is None
