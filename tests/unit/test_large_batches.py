"""What large batches need: LARS and LAMB against updates computed by hand, rates that grow, a warm-up."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment
from foretell.runtime.optimizer import torch_class, torch_rule
from foretell.runtime.training import warmed
from foretell.runtime.worker import checked

Lars, Lamb = torch_class("lars"), torch_class("lamb")


def _weight(values: list[list[float]] | list[float], gradient: list[list[float]] | list[float]) -> torch.nn.Parameter:
    weight = torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))
    weight.grad = torch.tensor(gradient, dtype=torch.float64)
    return weight


def test_a_step_of_lars_is_the_papers() -> None:
    """|w| = 5, |g| = 1: the layer's rate is 0.5 x 0.01 x 5 / (1 + 0.1 x 5) = 1/60, of g + 0.1 w = (0.9, 0.4)."""
    weight = _weight([[3.0, 4.0]], [[0.6, 0.8]])
    optimizer = Lars([weight], lr=0.5, momentum=0.9, weight_decay=0.1, trust=0.01)
    optimizer.step()
    rate = 0.5 * 0.01 * 5.0 / (1.0 + 0.1 * 5.0)
    first = [rate * (0.6 + 0.3), rate * (0.8 + 0.4)]
    assert weight.tolist()[0] == pytest.approx([3.0 - first[0], 4.0 - first[1]], rel=1e-6)  # norms are in fp32

    length = math.hypot(3.0 - first[0], 4.0 - first[1])
    again = 0.5 * 0.01 * length / (1.0 + 0.1 * length)
    weight.grad = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    second = [
        0.9 * first[0] + again * (0.6 + 0.1 * (3.0 - first[0])),
        0.9 * first[1] + again * (0.8 + 0.1 * (4 - first[1])),
    ]
    optimizer.step()
    assert weight.tolist()[0] == pytest.approx([3 - first[0] - second[0], 4 - first[1] - second[1]], rel=1e-6)


def test_a_step_of_lamb_is_the_papers() -> None:
    """At first Adam's change is the sign of the gradient: r = (1, -1) + 0.1 w, and w moves by lr |w| along r."""
    weight = _weight([[3.0, 4.0]], [[0.5, -2.0]])
    Lamb([weight], lr=0.01, eps=0.0, weight_decay=0.1).step()
    change = (1.0 + 0.3, -1.0 + 0.4)
    times = 0.01 * 5.0 / math.hypot(*change)
    assert weight.tolist()[0] == pytest.approx([3.0 - times * change[0], 4.0 - times * change[1]], rel=1e-6)


@given(times=st.floats(0.01, 100.0))
def test_the_length_of_a_step_is_that_of_the_weight_whatever_the_gradients(times: float) -> None:
    for kind, arguments in ((Lars, {"weight_decay": 0.0}), (Lamb, {"weight_decay": 0.0, "eps": 0.0})):
        moved: list[torch.Tensor] = []
        for scale in (1.0, times):
            weight = _weight([[3.0, 4.0], [1.0, -2.0]], [[0.1 * scale, 0.2 * scale], [-0.3 * scale, 0.4 * scale]])
            kind([weight], lr=0.1, **arguments).step()
            moved.append(weight.detach())
        torch.testing.assert_close(moved[0], moved[1], rtol=1e-5, atol=1e-7)


def test_biases_are_not_scaled_and_zeros_can_leave_zero() -> None:
    bias = _weight([3.0, 4.0], [0.6, 0.8])
    Lars([bias], lr=0.5, momentum=0.9).step()
    assert bias.tolist() == pytest.approx([3.0 - 0.3, 4.0 - 0.4])
    for kind in (Lars, Lamb):
        zero = _weight([[0.0, 0.0]], [[1.0, 1.0]])
        kind([zero], lr=0.1).step()
        assert (zero != 0).all() and zero.isfinite().all()


def test_a_rate_grows_with_the_batch_and_is_the_usual_one_otherwise() -> None:
    assert torch_rule("sgd", 0.1, 8.0).arguments["lr"] == pytest.approx(0.8)
    assert torch_rule("lamb", 0.0, 4.0).arguments["lr"] == pytest.approx(4e-3)
    assert torch_rule("sgd", 0.1).arguments["lr"] == 0.1


@given(steps=st.integers(1, 50))
def test_a_warm_up_rises_in_a_line_and_stays(steps: int) -> None:
    rates = [warmed(at, steps) for at in range(steps + 3)]
    assert rates[:steps] == pytest.approx([(at + 1) / steps for at in range(steps)])
    assert rates[steps - 1 :] == [1.0] * 4 and warmed(0, 0) == 1.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its distributed optimizers are imported
@pytest.mark.parametrize("plan", ["filter2", "channel2"])
def test_norms_of_shares_are_refused(plan: str) -> None:
    with pytest.raises(BadInput, match="norm of whole weights"):
        checked(Assignment(model="lenet", plan=plan, batch=4, optimizer="lars"))
    checked(Assignment(model="lenet", plan="dp2", batch=4, optimizer="lars"))


MOE = "mixture:layers=1,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=40,seq=8,experts=4,top_k=2"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("model", "plan"),
    [
        ("lenet", "dp2:zero2 +bf16"),
        ("lenet", "dp2:zero3 +bf16"),
        ("lenet", "dp2:zero3 +offload:optimizer"),
        (MOE, "dp2:ep2"),
    ],
)
def test_norms_of_copies_of_shares_and_of_some_experts_are_refused(model: str, plan: str) -> None:
    with pytest.raises(BadInput, match="norm of whole weights"):
        checked(Assignment(model=model, plan=plan, batch=4, optimizer="lamb"))
    checked(Assignment(model=model, plan=plan, batch=4, optimizer="adamw"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("plan", ["dp2:zero1 +bf16", "dp2:zero3", "dp2 +offload:optimizer"])
def test_norms_of_whole_weights_are_not(plan: str) -> None:
    checked(Assignment(model="lenet", plan=plan, batch=4, optimizer="lamb"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("plan", "method"), [("ps2:async", ""), ("ring2", ""), ("local2:tau4", "local:tau=4")])
def test_a_warm_up_of_ranks_at_their_own_pace_is_refused(plan: str, method: str) -> None:
    with pytest.raises(BadInput, match="--warmup"):
        checked(Assignment(model="lenet", plan=plan, batch=4, method=method, optimizer="sgd", warmup=3))
