"""Any module becomes a graph: what it costs, what it is called, and what is said when it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from agreement import measure_module
from data import factories
from foretell.errors import BadInput, TraceFailed
from foretell.model.fold import unfold
from foretell.model.graph import Graph, Node
from foretell.model.importers.torch_trace import trace
from foretell.model.totals import totals

FILE = str(Path(factories.__file__))


def nodes(graph: Graph, kind: str) -> list[Node]:
    return [node for node in unfold(graph.blocks).nodes if node.kind == kind]


def assert_as_measured(module: nn.Module, *inputs: torch.Tensor) -> Graph:
    """The graph has the parameters, flops and saved bytes that PyTorch itself counts."""
    graph = trace(module, inputs, torch.sum)
    ours, theirs = totals(graph), measure_module(module, inputs, torch.sum)
    assert ours.parameters == theirs.parameters
    assert ours.buffer_bytes == theirs.buffer_bytes
    assert ours.forward.matrix == theirs.forward_flops
    assert ours.backward.matrix == theirs.backward_flops
    assert ours.saved_bytes == theirs.saved_bytes
    return graph


class Skips(nn.Module):
    """A small U-Net: down, up, and a skip across."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.middle = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.down(image)))
        deep = F.interpolate(F.silu(self.middle(F.max_pool2d(x, 2))), scale_factor=2.0)
        return self.up(torch.cat([x, deep], dim=1)).sigmoid()


def test_skips_concatenation_and_grouped_convolution() -> None:
    graph = assert_as_measured(Skips(), torch.randn(2, 3, 16, 16))
    [up] = [node for node in nodes(graph, "convolution") if node.path == "up"]
    assert [dim.name for loop in up.loops for dim in loop.dims] == ["sample", "channel", "channel", "height", "width"]


class Written(nn.Module):
    """Attention and RMS norm by hand, with in-place operators and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16, bias=False)
        self.register_buffer("mask", torch.ones(6, 6).tril().bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        q, k, v = self.qkv(y).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).div_(2).masked_fill(~self.mask, -torch.inf)
        y = scores.softmax(-1) @ v
        return x + F.relu_(self.out(y.transpose(1, 2).flatten(2)))


def test_attention_by_hand_in_place_operators_and_buffers() -> None:
    graph = assert_as_measured(nn.Sequential(Written(), Written()), torch.randn(2, 6, 16))
    scores, weighted = (node for node in nodes(graph, "matmul") if node.path == "0" and len(node.loops[0].dims) == 2)
    assert [dim.name for loop in scores.loops for dim in loop.dims] == [
        "sample", "head", "sequence", "head_dim", "key",
    ]  # fmt: skip
    assert [dim.name for dim in weighted.loops[2].dims] == ["key"]


class Lora(nn.Module):
    """A frozen layer and a trained one of low rank beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(32, 32).requires_grad_(False)
        self.down = nn.Linear(32, 4, bias=False)
        self.up = nn.Linear(4, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def test_frozen_weights_have_no_gradient() -> None:
    graph = assert_as_measured(nn.Sequential(Lora(), nn.GELU(), Lora()), torch.randn(4, 32))
    assert totals(graph).trainable == 2 * 2 * 4 * 32
    gradients = {node.path: node.gradients for node in nodes(graph, "matmul")}
    assert gradients["0.base"] == ()
    assert gradients["2.base"] == ("input_gradient",)
    assert gradients["2.up"] == ("input_gradient", "weight_gradient")


def test_bias_that_is_trained_alone() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Conv1d(4, 4, 3))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    assert_as_measured(model, torch.randn(2, 4, 8))


def test_layers_fold_though_the_loop_adds_the_shortcut() -> None:
    with FakeTensorMode():
        graph = assert_as_measured(factories.Tokens(), torch.randint(100, (2, 16)))
    assert [(block.name, block.times) for block in graph.blocks if block.times > 1] == [("layers.0..3", 4)]
    words = {dim.name for node in nodes(graph, "matmul") for loop in node.loops for dim in loop.dims}
    assert words == {"sample", "sequence", "hidden", "ffn", "vocab"}
    tied = [tensor for tensor in unfold(graph.blocks).tensors if tensor.name == "embedding.weight"]
    assert len(tied) == 1


class Mixed(nn.Module):
    """Every fused function: attention with dropout, RMS norm, a recurrent layer, the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.recurrent = nn.LSTM(16, 8, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.recurrent(self.dropout(self.norm(x + y)))[0]


def test_fused_functions_are_one_operator_each() -> None:
    target = torch.zeros(2, 6, dtype=torch.int64)
    graph = trace(Mixed(), torch.randn(2, 6, 16), lambda y: F.cross_entropy(y.flatten(0, 1), target.flatten()))
    kinds = [node.kind for node in unfold(graph.blocks).nodes]
    counts = {
        kind: kinds.count(kind) for kind in ("attention", "normalize", "dropout", "recurrent_call", "cross_entropy")
    }
    assert counts == {"attention": 1, "normalize": 1, "dropout": 2, "recurrent_call": 4, "cross_entropy": 1}
    assert "softmax" not in kinds
    assert graph.warnings == ()
    [attention] = nodes(graph, "attention")
    kept = [unfold(graph.blocks).tensors[number].elements() for number in attention.keeps]
    assert max(kept) == 2 * 6 * 16  # queries, keys and values, but no scores
    [dropout] = [node for node in nodes(graph, "dropout") if node.path == "dropout"]
    assert unfold(graph.blocks).tensors[dropout.keeps[0]].dtype == "bool"


@torch.library.custom_op("test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x @ x


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _twice_backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    return gradient @ ctx.saved_tensors[0].t() + ctx.saved_tensors[0].t() @ gradient


twice.register_autograd(_twice_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(twice(self.layer(x))).real


def test_unknown_operators_are_kept_and_listed() -> None:
    graph = trace(Custom(), torch.randn(8, 8), torch.sum)
    found = {node.operator.name: node for node in nodes(graph, "unknown")}
    assert set(found) == {"test.twice", "_fft_r2c"}
    assert found["test.twice"].operator.backward_flops == 2 * 2 * 8**3
    assert found["test.twice"].keeps
    [warning] = [text for text in graph.warnings if "memory-bound" in text]
    assert "test.twice (1x)" in warning
    assert "aten._fft_r2c (1x)" in warning


class _Thrice(torch.autograd.Function):
    """A product whose author computes more than needed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return gradient @ w.t(), x.t() @ (gradient @ (w @ w.t()))


class WithFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Thrice.apply(self.first(x), self.weight)


def test_the_backward_pass_of_an_autograd_function_is_counted() -> None:
    graph = assert_as_measured(WithFunction(), torch.randn(4, 8))
    [extra] = nodes(graph, "unknown")
    assert extra.operator.name == "_Thrice backward"


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("no gradient yet")


class FailsBackward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Fails.apply(self.layer(x))


def test_a_backward_pass_that_fails_leaves_the_forward_graph() -> None:
    graph = trace(FailsBackward(), torch.randn(4, 8), torch.sum)
    assert totals(graph).forward.matrix == 2 * 4 * 8 * 8
    [warning] = graph.warnings
    assert "no gradient yet" in warning


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=at < 2)
        return x


def test_recomputation_is_left_to_the_plan() -> None:
    plain = trace(nn.Sequential(*Checkpointed().layers), torch.randn(4, 8), torch.sum)
    graph = trace(Checkpointed(), torch.randn(4, 8), torch.sum)
    assert totals(graph) == totals(plain)
    assert "recompute" in graph.warnings[0]


class Selects(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class Asks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.isnan(x).any():
            raise ValueError("not a number")
        return self.layer(x) * x.max().item()


def test_what_depends_on_data() -> None:
    with pytest.raises(TraceFailed, match="depends on the data") as problem:
        trace(nn.Sequential(nn.Linear(8, 8), Selects()), torch.randn(4, 8))
    assert problem.value.where == "1"
    graph = trace(nn.Sequential(Asks(), Asks()), torch.randn(4, 8), torch.sum)
    assert graph.warnings == (
        "0 and 1 more asked for the value of a tensor and was told False",
        "0 and 1 more asked for the value of a tensor and was told 1.0",
    )


def test_errors_of_the_module_are_told_by_their_own_line() -> None:
    with pytest.raises(TraceFailed, match="ValueError: this model is not finished") as problem:
        trace(*factories.broken())  # type: ignore[misc]
    line = next(at for at, text in enumerate(Path(FILE).read_text().splitlines(), 1) if "not finished" in text)
    assert f"{FILE}:{line} in forward" in problem.value.where
    assert "module 1" in problem.value.where


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(TraceFailed, match=r"RuntimeError: .*\[8, 12\] X \[8, 4\]") as problem:
        trace(nn.Sequential(nn.Linear(16, 12), nn.Linear(8, 4)), torch.randn(8, 16))
    assert "module 1" in problem.value.where


def test_the_module_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).eval()
    weight, mean = module[0].weight, module[1].running_mean
    graph = trace(module, torch.randn(4, 8), torch.sum)
    assert nodes(graph, "dropout")
    assert module[0].weight is weight
    assert module[1].running_mean is mean
    assert weight.grad is None
    assert not module.training
    assert F.dropout.__module__ == "torch.nn.functional"


@pytest.mark.parametrize(
    ("loss", "message"),
    [(lambda y: y, r"gives \(4, 8\), not one number"), (lambda y: 3.0, "gives float, not one number")],
)
def test_a_loss_that_is_not_one_number(loss: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        trace(nn.Linear(8, 8), torch.randn(4, 8), loss)


def test_outputs_without_a_loss() -> None:
    class Named(nn.Linear):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
            logits = super().forward(x)
            return {"loss": F.mse_loss(logits, labels), "logits": logits}

    graph = trace(Named(8, 8), {"x": torch.randn(4, 8), "labels": torch.randn(4, 8)})
    assert [node.kind for node in unfold(graph.blocks).nodes] == ["matmul", "squared_error"]
    assert graph.warnings == ()
    assert "no loss was given" in trace(nn.Linear(8, 8), torch.randn(4, 8)).warnings[0]
    assert "nothing is trained" in trace(nn.Flatten(), torch.randn(4, 8)).warnings[-1]


class Masked(nn.Module):
    """Attention under a mask of truths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 192)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.layer(x).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, mask)


def test_a_mask_of_truths_is_kept_as_numbers() -> None:
    assert_as_measured(Masked(), torch.randn(2, 16, 64), torch.ones(2, 1, 16, 16, dtype=torch.bool))
