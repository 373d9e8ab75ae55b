"""Qwen3-Next: its published size, agreement with PyTorch, the delta rule against its recurrence, training."""

import pytest
import torch
import torch.nn.functional as F

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.qwen3_next import PRESETS
from foretell.modules._delta_rule import DeltaRuleLayer
from language import assert_causal, assert_trains

# Of the class of transformers; the model card says 80 thousand million, of which a token meets 3 thousand million
COUNTS = {"qwen3-next-80b-a3b": 79_674_391_296}

SMALL = "layers=2,global_every=2,hidden=64,heads=4,kv_heads=2,head_dim=16,rotary_dim=8,vocab=96,seq=80,ffn=32,"
SMALL += "experts=8,top_k=2,shared_ffn=32,rule_heads=4,rule_keys=2,rule_head_dim=16,rule_key_dim=8"


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count
    assert 3e9 < zoo.names()[name].active_parameters < 4e9


def test_every_size_is_published() -> None:
    assert {*COUNTS, "qwen3_next"} == set(PRESETS)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_agrees_with_pytorch(dtype: str) -> None:
    assert_agrees(f"qwen3_next:{SMALL},dtype={dtype}", batch=2, saved=0.001)
    assert_same_names(f"qwen3_next:{SMALL},dtype={dtype}")


def test_layers_take_turns() -> None:
    assert [(block.name, block.times) for block in zoo.load("qwen3_next").blocks if block.times > 1] == [
        ("layers.0..47", 12)
    ]


def recurrence(rule: DeltaRuleLayer, *inputs: torch.Tensor) -> torch.Tensor:
    """The rule place by place, as its paper writes it."""
    q, k, v, dt, e = inputs
    q, k = (part / part.norm(dim=-1, keepdim=True) for part in (q, k))
    kept = (-rule.decay.exp() * F.softplus(dt + rule.bias)).exp()
    state = torch.zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3], dtype=v.dtype)
    rows: list[torch.Tensor] = []
    for at in range(v.shape[1]):
        state = state * kept[:, at, :, None, None]
        known = (state * k[:, at, :, :, None]).sum(2)
        change = (v[:, at] - known) * e[:, at, :, None]
        state = state + k[:, at, :, :, None] * change[:, :, None]
        rows.append((state * q[:, at, :, :, None]).sum(2) * q.shape[-1] ** -0.5)
    return torch.stack(rows, 1)


@pytest.mark.parametrize("places", [1, 40, 64, 150])
def test_chunks_are_the_recurrence(places: int) -> None:
    """Outputs and all gradients, for fewer places than a chunk has, as many, and more."""
    torch.manual_seed(0)
    rule = DeltaRuleLayer(3).double()
    shapes = ((2, places, 3, 4), (2, places, 3, 4), (2, places, 3, 5), (2, places, 3), (2, places, 3))
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weights = [*inputs, rule.decay, rule.bias]
    found, wanted = rule(*inputs[:4], inputs[4].sigmoid()), recurrence(rule, *inputs[:4], inputs[4].sigmoid())
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    towards = torch.randn_like(wanted)
    of_found, of_wanted = (torch.autograd.grad(y, weights, towards) for y in (found, wanted))
    for one, other in zip(of_found, of_wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-3, atol=1e-4)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"qwen3_next:{SMALL}")


def test_trains() -> None:
    assert_trains(f"qwen3_next:{SMALL}")


def test_heads_that_share_unevenly_are_refused() -> None:
    with pytest.raises(BadInput, match="rule_heads=33"):
        zoo.load("qwen3_next:rule_heads=33")
