"""Mamba-2: published sizes, agreement with PyTorch, the scan against its recurrence."""

import pytest
import torch
import torch.nn.functional as F

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.mamba2 import PRESETS
from foretell.modules._state_space import ChannelConvolution, _Scan
from language import assert_causal, assert_folds, assert_trains

# The weights on Hugging Face; of sizes by name, as rounded there
PUBLISHED = {
    "mamba2-130m": 128_989_632,
    "mamba2-2.7b": 2_702_599_680,
    "mamba-codestral-7b": 7_285_403_648,
}
ROUNDED = {"mamba2-370m": 0.37e9, "mamba2-780m": 0.78e9, "mamba2-1.3b": 1.34e9}

SMALL = "layers=3,hidden=64,vocab=96,head_dim=16,state=8,chunk=16,seq=48"


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(("name", "count"), ROUNDED.items())
def test_parameters_as_rounded(name: str, count: float) -> None:
    assert abs(predicted(name).parameters - count) <= 0.005e9


def test_every_size_is_published() -> None:
    assert {*PUBLISHED, *ROUNDED, "mamba2"} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_layers_are_one_block(name: str) -> None:
    assert_folds(name, [("layers", 0, PRESETS[name].layers)])


@pytest.mark.parametrize(
    "spec", [f"mamba2:{SMALL}", f"mamba2:{SMALL},groups=2,dtype=bf16", f"mamba2:{SMALL},seq=40".replace("seq=48,", "")]
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)
    assert_same_names(spec)


def _stepped(parts: list[torch.Tensor]) -> torch.Tensor:
    """One place after the other: the recurrence itself."""
    x, dt, b, c, decay, skip, bias = parts
    steps = F.softplus(dt + bias)
    state = torch.zeros(*x.shape[:1], *x.shape[2:4], b.shape[-1], x.shape[-1], dtype=x.dtype)
    found: list[torch.Tensor] = []
    for t in range(x.shape[1]):
        left = (-decay.exp() * steps[:, t]).exp()[..., None, None]
        added = steps[:, t, ..., None, None] * b[:, t, :, None, :, None] * x[:, t, ..., None, :]
        state = state * left + added
        found.append((c[:, t, :, None, :, None] * state).sum(3) + x[:, t] * skip[..., None])
    return torch.stack(found, 1)


@pytest.mark.parametrize("chunk", [8, 16, 64])
def test_chunks_compute_the_recurrence(chunk: int) -> None:
    torch.manual_seed(0)
    groups, share = 2, 3
    shapes = [(2, 37, groups, share, 4), (2, 37, groups, share), (2, 37, groups, 5), (2, 37, groups, 5)]
    shapes += [(groups, share)] * 3
    parts = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    goal = torch.randn(shapes[0], dtype=torch.float64)
    found: list[list[torch.Tensor]] = []
    for y in (_Scan.apply(chunk, *parts), _stepped(parts)):
        found.append([y, *torch.autograd.grad((y * goal).sum(), parts)])
    torch.testing.assert_close(*found)


def test_short_convolutions_are_those_of_torch() -> None:
    torch.manual_seed(0)
    layer = ChannelConvolution(6, 4).double()
    x = torch.randn(2, 9, 6, dtype=torch.float64, requires_grad=True)
    goal = torch.randn(2, 9, 6, dtype=torch.float64)
    theirs = F.conv1d(F.pad(x.mT, (3, 0)), layer.weight[:, None], layer.bias, groups=6).mT
    found: list[list[torch.Tensor]] = []
    for y in (layer(x), theirs):
        found.append([y, *torch.autograd.grad((y * goal).sum(), [x, layer.weight, layer.bias])])
    torch.testing.assert_close(*found)


def test_a_token_sees_only_earlier_ones() -> None:
    assert_causal(f"mamba2:{SMALL}")


def test_trains() -> None:
    assert_trains(f"mamba2:{SMALL}")


@pytest.mark.parametrize(("fields", "words"), [("groups=5", "25 heads"), ("hidden=100", "hidden=128")])
def test_fields_that_do_not_fit(fields: str, words: str) -> None:
    with pytest.raises(BadInput) as problem:
        zoo.load(f"mamba2:{fields}")
    assert words in str(problem.value)
