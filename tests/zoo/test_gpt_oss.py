"""GPT-OSS: published sizes, agreement with PyTorch, sinks, experts with biases."""

import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo._experts import Routing
from foretell.model.zoo.gpt_oss import PRESETS
from foretell.modules._experts import ExpertFeedForward
from foretell.modules._local import local_attention
from language import assert_causal, assert_trains

# The model card's table: 20.91 and 116.83 billion, 3.61 and 5.13 active, which leave the token table out
PUBLISHED = {"gpt-oss-20b": 20_914_757_184, "gpt-oss-120b": 116_829_156_672}
ACTIVE = {"gpt-oss-20b": 3.61, "gpt-oss-120b": 5.13}

SMALL = "layers=4,hidden=64,heads=4,kv_heads=2,head_dim=16,ffn=48,vocab=96,seq=32,window=8,experts=8"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_active_parameters(name: str, billions: float) -> None:
    fields = PRESETS[name]
    assert round((fields.active_parameters - fields.vocab * fields.hidden) / 1e9, 2) == billions


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, "gpt_oss"} == set(PRESETS)


@pytest.mark.parametrize("spec", [f"gpt_oss:{SMALL}", f"gpt_oss:{SMALL},dtype=bf16"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def _written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor, window: int) -> torch.Tensor:
    """As in the paper's model: one column more, which is dropped after the softmax."""
    k, v = (part.repeat_interleave(2, dim=1) for part in (k, v))
    places = torch.arange(q.shape[2])
    behind = places[:, None] - places
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    scores = scores.masked_fill((behind < 0) | (behind >= window), -torch.inf)
    column = sink[None, :, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ v


@pytest.mark.parametrize("places", [20, 300])  # one block of queries, and two
def test_sinks_and_windows_compute_what_is_written_out(places: int) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 4, places, 8, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(2, 2, places, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    sink = torch.randn(4, dtype=torch.float64, requires_grad=True)
    goal = torch.randn(2, 4, places, 8, dtype=torch.float64)
    found: list[list[torch.Tensor]] = []
    for y in (local_attention(q, k, v, sink, window=7), _written_out(q, k, v, sink, 7)):
        found.append([y, *torch.autograd.grad((y * goal).sum(), [q, k, v, sink])])
    torch.testing.assert_close(*found)


def test_soft_caps_compute_what_is_written_out() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 30, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    goal = torch.randn(2, 3, 30, 8, dtype=torch.float64)
    scores = (((q @ k.mT) * 0.5 / 2.0).tanh() * 2.0).masked_fill(~torch.ones(30, 30).tril().bool(), -torch.inf)
    found: list[list[torch.Tensor]] = []
    for y in (local_attention(q, k, v, cap=2.0, scale=0.5), scores.softmax(-1) @ v):
        found.append([y, *torch.autograd.grad((y * goal).sum(), [q, k, v])])
    torch.testing.assert_close(*found)


def test_experts_compute_what_a_dense_loop_does() -> None:
    torch.manual_seed(0)
    routing = Routing(8, 3, "chosen", bias=True)
    layer = ExpertFeedForward(8, 6, routing, biased=True).double()
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=3)  # some gates reach the limit
    x = torch.randn(10, 8, dtype=torch.float64)
    best, chosen = (x @ layer.router.weight.T + layer.router.bias).topk(3)
    weights = best.float().softmax(-1).double()
    expected = torch.zeros_like(x)
    for token in range(10):
        for weight, expert in zip(weights[token], chosen[token], strict=True):
            gate, up = (
                x[token] @ part.weight[expert] + part.bias[expert] for part in (layer.experts.gate, layer.experts.up)
            )
            gate, up = gate.clamp(max=7), up.clamp(-7, 7)
            inner = (up + 1) * gate * torch.sigmoid(1.702 * gate)
            expected[token] += weight * (inner @ layer.experts.down.weight[expert] + layer.experts.down.bias[expert])
    torch.testing.assert_close(layer(x), expected)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"gpt_oss:{SMALL}")


def test_trains() -> None:
    assert_trains(f"gpt_oss:{SMALL}")


def test_sinks_want_a_kernel_that_has_them() -> None:
    with pytest.raises(BadInput, match="no sinks") as caught:
        zoo.load("gpt_oss:attention=flash")
    assert caught.value.fix == "attention=local"
