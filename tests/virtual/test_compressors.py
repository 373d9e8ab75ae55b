"""What compressors promise: means, bytes, and that nothing is lost for good."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.learning.compressor import Compressor, Sender, dense, priced
from foretell.learning.members import COMPRESSORS, composed, member
from foretell.plan.policies.compression import Compression
from foretell.plan.text import parse
from law_examples import examples
from virtual.worlds import played

SHAPES = ((6, 40), (6,), (3, 2, 2), ())
SIZE = 6 * 40 + 6 + 12 + 1
FEW = examples(5)


def made(name: str, **options: Any) -> Compressor:
    return member(COMPRESSORS, Compressor, name)(**options)


def gradient(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(SIZE)


@FEW
@given(seed=st.integers(0, 999))
@pytest.mark.parametrize("name", list(COMPRESSORS))
def test_what_arrives_has_the_same_form_and_fewer_bytes(name: str, seed: int) -> None:
    one, vector = made(name), gradient(seed)
    arrives = one.lossy(vector, SHAPES, np.random.default_rng(seed))
    assert arrives.shape == vector.shape
    assert np.isfinite(arrives).all()
    assert 0 < one.size(arrives, SHAPES) <= dense(SHAPES) * (2 if name == "threshold" else 1)
    assert one.size_of_sum(10.0, 1, SHAPES) == 10.0


@pytest.mark.parametrize("name", ["int8", "qsgd", "ternary"])
def test_stochastic_rounding_has_the_mean_of_what_was_sent(name: str) -> None:
    one, vector, draws = made(name), gradient(1), np.random.default_rng(2)
    times = 1500
    arrived = np.array([one.lossy(vector, SHAPES, draws) for _ in range(times)])
    error = arrived.std(axis=0) / np.sqrt(times)
    rare = 8 * np.abs(arrived).max() / times  # small elements are rounded up so seldom that their spread is not seen
    assert (np.abs(arrived.mean(axis=0) - vector) <= 5 * error + rare).all()
    assert error.max() > 0


@FEW
@given(seed=st.integers(0, 999))
@pytest.mark.parametrize("name", ["onebit", "topk", "threshold", "powersgd"])
def test_with_feedback_nothing_is_lost_in_the_long_run(name: str, seed: int) -> None:
    """All that was sent is all that was meant, but for what is still owed, and that does not grow without end."""
    options = {"above": 0.5} if name == "threshold" else {"share": 0.05} if name == "topk" else {}
    sender = Sender(made(name, **options), SHAPES, np.random.default_rng(seed))
    meant, arrived, owed = np.zeros(SIZE), np.zeros(SIZE), []
    for at in range(240):
        vector = gradient(1000 * seed + at)
        meant += vector
        arrived += sender.send(vector)[0]
        assert sender.owed is not None
        owed.append(float(np.linalg.norm(sender.owed)))
    np.testing.assert_allclose(arrived + sender.owed, meant, atol=1e-9)
    assert np.mean(owed[180:]) < 1.5 * np.mean(owed[60:120]) + 1.0


@pytest.mark.parametrize(
    ("name", "options", "plan"),
    [
        ("fp16", {}, "fp16"),
        ("int8", {}, "int8"),
        ("onebit", {}, "1bit"),
        ("ternary", {}, "ternary"),
        ("qsgd", {"levels": 4}, "qsgd4"),
        ("powersgd", {"rank": 2}, "powersgd2"),
        ("dgc", {"share": 0.05}, "dgc0.05"),
        ("threshold", {"share": 0.05}, "threshold0.05"),
        ("factors", {"samples": 3}, "factors3"),
    ],
)
def test_bytes_are_those_of_the_oracle(name: str, options: dict[str, Any], plan: str) -> None:
    policy = parse(f"dp2 +compress:{plan}").policy(Compression)
    assert made(name, **options).size(gradient(0), SHAPES) == priced(policy, SHAPES)
    assert str(parse(f"dp2 +compress:{plan}")) == f"dp2 +compress:{plan}"


@pytest.mark.parametrize(("levels", "bits"), [(1, 2), (3, 3), (4, 4), (255, 9)])
def test_levels_take_their_bits_and_a_sign(levels: int, bits: int) -> None:
    assert Compression(levels=levels).payload(800, 1, 4) == 100 * bits + 4


def test_two_thin_matrices_hold_a_thin_matrix() -> None:
    draws = np.random.default_rng(0)
    thin = (draws.standard_normal((30, 2)) @ draws.standard_normal((2, 50))).ravel()
    arrives = made("powersgd", rank=2).lossy(thin, ((30, 50),), draws)
    np.testing.assert_allclose(arrives, thin, atol=1e-8)


def test_factors_are_smaller_where_batches_are() -> None:
    shapes = ((100, 200), (100,))
    assert made("factors", samples=4).size(np.zeros(20100), shapes) == 4 * (4 * 300 + 100)
    assert made("factors", samples=1000).size(np.zeros(20100), shapes) == dense(shapes)


def test_sums_of_sparse_gradients_grow_until_they_are_dense() -> None:
    one = made("topk", share=0.01)
    sizes = [one.size_of_sum(100.0, count, ((1000,),)) for count in (1, 2, 8, 1000)]
    assert sizes == [100.0, 200.0, 800.0, 4000.0]


def test_a_gradient_that_cannot_be_summed_goes_to_everybody() -> None:
    """n - 1 times its bytes out of each worker, as the oracle's all-gather has it."""
    plain, apart = played("sync@replicated", 4), played("sync@replicated+int8", 4)
    rounds = plain.absorbed // 4
    one = apart.compressor.size(apart.server.weights, apart.problem.shapes) / dense(apart.problem.shapes)
    assert apart.bytes["up"] == pytest.approx(rounds * 4 * 3 * one, rel=0.02)
    assert apart.bytes["down"] == 0


def test_momentum_before_compression_is_momentum() -> None:
    """With all elements sent, deep gradient compression sends everything once: plain gradients."""
    dgc, plain = played("sync+dgc:share=1"), played("sync")
    np.testing.assert_allclose(dgc.server.weights, plain.server.weights, rtol=1e-9)
    assert composed("sync+dgc").compressor is not None
