"""Operators of all kinds: the traced graph counts and keeps exactly what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from agreement import measure_module
from foretell.model.analysis import analyze
from foretell.model.graph import Graph
from foretell.model.importers import torch_operators
from foretell.model.importers.torch_products import own_kernels
from foretell.model.importers.torch_trace import trace
from foretell.model.operators.attention import Attention
from foretell.model.totals import totals


class Features(nn.Module):
    """A function of x[4, 16], a dense layer of it, and a weight[16, 16]."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.weight = nn.Parameter(torch.zeros(16, 16))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.layer(x), self.weight)


def _assigned(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    z = torch.zeros(4, 16)
    z[:, :4] = y[:, :4]
    z[0] = 1
    return z * 2


def _without_gradient(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        share = (y @ w).softmax(-1)
    return y * share + (y @ w).detach()


def _complex(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    turn = torch.polar(torch.ones(8), torch.arange(8.0))
    return torch.view_as_real(torch.view_as_complex(y.view(4, 8, 2)) * turn)


def _first(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[0]) // 2


def _routed(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Rows sorted by their expert, and put back, as transformers does it (integrations/moe.py)."""
    scores, chosen = y.topk(2)
    expert, order = torch.sort(chosen.reshape(-1))
    ends = torch.cumsum(torch.histc(expert.float(), bins=16, min=0, max=15), dim=0, dtype=torch.int32)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel())
    only = torch.zeros_like(y).scatter(1, chosen, scores)
    return y[order // 2][back].view(4, 2, 16).sum(1) + only + ends


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "products": lambda x, y, w: torch.einsum("bi,oi->bo", y, w) + torch.addmm(x, y, w) + (w @ y.t()).t(),
    "batched products": lambda x, y, w: y.view(2, 2, 16) @ y.view(2, 16, 2) + torch.einsum("bi,bj->ij", y, y).sum(),
    "activations": lambda x, y, w: F.glu(F.mish(F.softplus(F.elu(F.hardswish(F.gelu(y, approximate="tanh")))))),
    "in place": lambda x, y, w: y.add_(1).mul_(2).relu_().sigmoid_(),
    "assigned": _assigned,
    "statistics": lambda x, y, w: y.std(0) + y.norm(dim=0) + y.amax(0) + y.max(0)[0] + y.logsumexp(0) + y.prod(0),
    "sums along": lambda x, y, w: y.cumsum(1).flip(0).roll(1, 0) + y.sort(-1)[0] + y.topk(1)[0],
    "picked rows": lambda x, y, w: y[_first(y)][:, None].expand(-1, 3, -1) + y.index_select(0, _first(y))[:, None],
    "scattered": lambda x, y, w: torch.zeros(8, 16).scatter_add(0, _first(y)[:, None].expand(4, 16), y),
    "routed": _routed,
    "put": lambda x, y, w: (
        torch.zeros(8, 16).index_put((_first(y),), y) + torch.zeros(8, 16).index_add(0, _first(y), y)
    ),
    "pieces": lambda x, y, w: (
        torch.cat([*y.split([4, 12], -1), y.unbind(0)[0].expand(4, 16)], -1) + y.chunk(4, -1)[0][:, :1]
    ),
    "joined": lambda x, y, w: (
        torch.stack([y, x]).repeat(2, 1, 1).repeat_interleave(2, 0).transpose(0, 2).reshape(16, -1)
    ),
    "masked": lambda x, y, w: torch.where(x > 0, y, torch.zeros(())).masked_fill(x > 1, 0).clamp(0, 1).tril(),
    "no gradient": _without_gradient,
    "complex": _complex,
    "unused": lambda x, y, w: (y @ w, y)[1],
    "losses": lambda x, y, w: F.smooth_l1_loss(y, x) + F.kl_div(y.log_softmax(-1), x.softmax(-1), reduction="sum"),
    "weighted loss": lambda x, y, w: F.cross_entropy(y, _first(y), weight=torch.ones(16), label_smoothing=0.1),
}


class Image(nn.Module):
    """Layers between a convolution and its end."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.first(x))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "norms": lambda: Image(nn.GroupNorm(2, 8), nn.BatchNorm2d(8), nn.InstanceNorm2d(8, affine=True), nn.LayerNorm(14)),
    "pools": lambda: Image(nn.AvgPool2d(2), nn.MaxPool2d(2, ceil_mode=True), nn.AdaptiveMaxPool2d(3)),
    "transposed": lambda: Image(nn.ConvTranspose2d(8, 4, 4, stride=2), nn.ConvTranspose2d(4, 4, 2, groups=2)),
    "borders": lambda: Image(nn.ReflectionPad2d(2), nn.ZeroPad2d(1), nn.Upsample(scale_factor=1.5, mode="bilinear")),
    "shuffled": lambda: Image(nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2), nn.Dropout2d(0.1)),
    "windows": lambda: Image(nn.Unfold(3), nn.Fold((14, 14), 3)),
}


def _loss(y: torch.Tensor) -> torch.Tensor:
    return y.abs().sum()


def _assert_exact(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> Graph:
    with FakeTensorMode():
        module, x = build(), torch.zeros(shape)
        graph = trace(module, x, _loss)
        ours, theirs = totals(graph), measure_module(module, (x,), _loss)
    assert (ours.parameters, ours.buffer_bytes) == (theirs.parameters, theirs.buffer_bytes)
    assert (ours.forward.matrix, ours.backward.matrix) == (theirs.forward_flops, theirs.backward_flops)
    assert ours.saved_bytes == theirs.saved_bytes
    assert graph.warnings == ()
    assert analyze(graph).work > 0
    return Graph.from_json(graph.to_json())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    _assert_exact(lambda: Features(FUNCTIONS[name]), (4, 16))


def test_experts_rows_are_followed() -> None:
    """What is known is shared out; every rank would do all of what is unknown."""
    graph = _assert_exact(lambda: Features(_routed), (4, 16))
    kinds = [node.kind for block in graph.blocks for node in block.nodes]
    assert {"sort", "histogram", "cumulative", "put", "top_k", "gather"} <= {*kinds}
    assert "unknown" not in kinds


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    _assert_exact(LAYERS[name], (2, 3, 16, 16))


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a cell": lambda: nn.GRUCell(16, 8),
    "one dim": lambda: nn.Sequential(nn.Conv1d(4, 8, 3, dilation=2), nn.MaxPool1d(2)),
    "nothing to train": lambda: nn.Softmax(-1),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(16, 8)), backend="eager"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_modules(name: str) -> None:
    with FakeTensorMode():
        graph = trace(OTHERS[name](), torch.zeros(4, 16), _loss)
    assert all(tensor.dims for block in graph.blocks for tensor in block.tensors if tensor.role == "parameter")
    assert not any(node.path.startswith("_orig_mod") for _, node in graph.nodes())


# attention kernels of other libraries


@torch.library.custom_op("foretell_tests::attend", mutates_args=())
def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


@_attend.register_fake
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(query)


_attend.register_autograd(
    lambda ctx, gradient: (gradient,) * 3, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


class Attending(nn.Module):
    """Attention by somebody's own kernel, between dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.first(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return self.last(_attend(*heads).transpose(1, 2).flatten(2))


def test_an_operator_that_a_kernel_names_is_traced_as_that_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch_operators.TABLE, "foretell_tests.attend", own_kernels("efficient", ["x"])["x"])
    graph = trace(Attending(), torch.zeros(2, 16, 32), _loss)
    (found,) = [node.operator for _, node in graph.nodes() if isinstance(node.operator, Attention)]
    assert found == Attention("efficient", causal=True)
    plain = next(node for _, node in graph.nodes() if node.operator == found)
    assert plain.sizes() == {
        "sample": 2, "kv_head": 4, "share": 1, "query": 16, "key": 16, "qk": 8, "value": 8
    }  # fmt: skip
