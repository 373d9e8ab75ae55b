"""Llama 4: published sizes, agreement with PyTorch, layers without positions."""

import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell.model.zoo._experts import Routing
from foretell.model.zoo.llama4 import PRESETS
from foretell.modules._experts import ExpertFeedForward
from language import assert_causal, assert_trains

# Meta's model cards: 109 and 400 billion with the vision tower, of which a token meets 17
PUBLISHED = {"llama4-scout": 109e9, "llama4-maverick": 400e9}
VISION = 0.9e9

SMALL = "hidden=64,heads=4,kv_heads=2,head_dim=16,ffn=48,shared_ffn=48,vocab=96,seq=32,experts=4,window=8"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: float) -> None:
    assert predicted(name).parameters + VISION == pytest.approx(count, rel=0.005)


@pytest.mark.parametrize("name", PUBLISHED)
def test_active_parameters(name: str) -> None:
    assert PRESETS[name].active_parameters / 1e9 == pytest.approx(17, abs=0.5)


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, "llama4"} == set(PRESETS)


@pytest.mark.parametrize(
    "spec",
    [
        f"llama4-scout:layers=8,{SMALL}",
        f"llama4-scout:layers=8,{SMALL},attention=local,dtype=bf16",
        f"llama4-maverick:layers=8,{SMALL},dense_ffn=96,dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def test_weights_come_before_the_experts() -> None:
    torch.manual_seed(0)
    layer = ExpertFeedForward(8, 6, Routing(4, 1, "sigmoid", normalized=False, before=True)).double()
    x = torch.randn(10, 8, dtype=torch.float64)
    weights, chosen = layer.router(x)
    expected = torch.zeros_like(x)
    for token, expert in enumerate(chosen[:, 0]):
        row = x[token] * weights[token]
        gate, up = row @ layer.experts.gate.weight[expert], row @ layer.experts.up.weight[expert]
        expected[token] = (torch.nn.functional.silu(gate) * up) @ layer.experts.down.weight[expert]
    torch.testing.assert_close(layer(x), expected)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"llama4:layers=4,{SMALL}")


def test_trains() -> None:
    assert_trains(f"llama4:layers=4,{SMALL}")
