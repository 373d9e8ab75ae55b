"""The parts that modules are made of: RMS norm, rotary positions, grouped matrix products."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from foretell.modules._experts import grouped_mm, grouped_product
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import RotaryTable, rotate


def _kept(function: object, *inputs: torch.Tensor) -> list[torch.Size]:
    """The shapes that autograd keeps."""
    shapes: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        shapes.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function(*inputs)  # type: ignore[operator]
    return shapes


def test_rms_norm_computes_what_torch_does() -> None:
    torch.manual_seed(0)
    ours, theirs = RMSNorm(6, 1e-5).double(), nn.RMSNorm(6, 1e-5).double()
    weight = torch.randn(6, dtype=torch.float64)
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    goal = torch.randn_like(x)
    found: list[list[torch.Tensor]] = []
    for norm in (ours, theirs):
        norm.weight.data.copy_(weight)
        y = norm(x)
        found.append([y, *torch.autograd.grad((y * goal).sum(), [x, norm.weight])])
    torch.testing.assert_close(*found)


def test_rms_norm_of_half_types_is_computed_in_fp32() -> None:
    x = torch.randn(4, 64, dtype=torch.bfloat16)
    exact = RMSNorm(64).double()(x.double())
    torch.testing.assert_close(RMSNorm(64).bfloat16()(x), exact.bfloat16(), rtol=0, atol=0)


def test_rms_norm_keeps_its_input_and_a_number_a_row() -> None:
    norm = RMSNorm(6)
    assert _kept(norm, torch.randn(2, 3, 6, requires_grad=True)) == [(2, 3, 6), (6,), (2, 3, 1)]


def test_rotary_turns_and_its_gradient_turns_back() -> None:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        angles = RotaryTable(4, 5)(5)
        for features in (4, 7):
            x = torch.randn(2, 3, 5, features, requires_grad=True)
            assert torch.autograd.gradcheck(lambda x: rotate(x, angles), (x,))
            y = rotate(x, angles)
            torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
            torch.testing.assert_close(y[..., 0, :], x[..., 0, :])
            torch.testing.assert_close(y[..., 4:], x[..., 4:])
    finally:
        torch.set_default_dtype(torch.float32)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    angles = RotaryTable(8, 32)(32)
    query, key = (torch.randn(8).expand(1, 1, 32, 8) for _ in range(2))
    scores = (rotate(query, angles) @ rotate(key, angles).transpose(-1, -2))[0, 0]
    for distance in (-5, 0, 9):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)


def test_rotary_keeps_its_angles_alone() -> None:
    angles = RotaryTable(8, 16)(16)
    x = torch.randn(2, 4, 16, 8, requires_grad=True)
    assert _kept(lambda x: rotate(x, angles), x) == [(16, 4), (16, 4)]


SPREADS = [(3, 0, 5, 2), (0, 0, 10, 0), (1, 1, 1, 1)]


@pytest.mark.parametrize("spread", SPREADS)
def test_grouped_products_are_each_expert_alone(spread: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(sum(spread), 6, dtype=torch.float64, requires_grad=True)
    w = torch.randn(len(spread), 6, 5, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor(list(itertools.accumulate(spread)), dtype=torch.int32)
    goal = torch.randn(sum(spread), 5, dtype=torch.float64)
    alone = torch.cat([rows @ w[expert] for expert, rows in enumerate(x.split(spread))])
    together = grouped_mm(x, w, offsets)
    torch.testing.assert_close(together, alone)
    ours, theirs = (torch.autograd.grad((y * goal).sum(), [x, w]) for y in (together, alone))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_grouped_products_of_fake_tensors(dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x = torch.empty(10, 6, dtype=dtype, requires_grad=True)
        w = torch.empty(4, 6, 5, dtype=dtype, requires_grad=True)
        y = grouped_mm(x, w, torch.empty(4, dtype=torch.int32))
        y.sum().backward()
    assert (y.shape, y.dtype) == ((10, 5), dtype)
    assert x.grad is not None and x.grad.shape == x.shape
    assert w.grad is not None and w.grad.shape == w.shape


def test_grouped_products_keep_their_operands() -> None:
    x, w = torch.randn(10, 6, requires_grad=True), torch.randn(4, 6, 5, requires_grad=True)
    offsets = torch.tensor([3, 3, 8, 10], dtype=torch.int32)
    assert _kept(grouped_mm, x, w, offsets) == [(10, 6), (4, 6, 5), (4,)]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(grouped_product, (x, w, offsets), test_utils=tests)
