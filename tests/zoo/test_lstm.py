"""Recurrent language models: published sizes, agreement with PyTorch's counter and with its own layers."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.operators.recurrent import CELLS
from foretell.modules._recurrent import RecurrentLayer

LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}

# Merity et al. 2016, arXiv 1609.07843, the Penn Treebank table: Zaremba et al.'s models, in millions
PUBLISHED = {"lstm-medium": 20, "lstm-large": 66}


@pytest.mark.parametrize(("name", "millions"), PUBLISHED.items())
def test_parameters(name: str, millions: int) -> None:
    assert round(predicted(name).parameters / 1e6) == millions


@pytest.mark.parametrize("cell", CELLS)
def test_parameters_are_those_of_pytorch(cell: str) -> None:
    parts = nn.Embedding(100, 12), LAYERS[cell](12, 20, num_layers=3), nn.Linear(20, 100)
    count = sum(p.numel() for part in parts for p in part.parameters())
    assert predicted(f"lstm:cell={cell},layers=3,embedding=12,hidden=20,vocab=100").parameters == count


@pytest.mark.parametrize(
    "spec",
    [
        "lstm:seq=9",
        "lstm:layers=3,embedding=24,hidden=16,vocab=50,seq=7",
        "gru:layers=3,embedding=24,hidden=16,vocab=50,seq=7",
        "rnn:layers=3,embedding=24,hidden=16,vocab=50,seq=7",
        "lstm:hidden=32,vocab=50,seq=5,dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=3, saved=0.0)


@pytest.mark.parametrize("cell", CELLS)
def test_computes_what_pytorch_computes(cell: str) -> None:
    torch.manual_seed(0)
    theirs = LAYERS[cell](5, 7, batch_first=True, dtype=torch.float64)
    ours = RecurrentLayer(cell, 5, 7).double()
    names = [name for name, _ in ours.named_parameters()]
    ours.load_state_dict({name: getattr(theirs, f"{name}_l0") for name in names})
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y_ours, (y_theirs, _) = ours(x_ours), theirs(x_theirs)
    torch.testing.assert_close(y_ours, y_theirs)
    direction = torch.randn_like(y_ours)
    y_ours.backward(direction)
    y_theirs.backward(direction)
    torch.testing.assert_close(x_ours.grad, x_theirs.grad)
    for name in names:
        torch.testing.assert_close(getattr(ours, name).grad, getattr(theirs, f"{name}_l0").grad)


@pytest.mark.parametrize("cell", CELLS)
def test_runs_under_autocast(cell: str) -> None:
    layer = RecurrentLayer(cell, 5, 7)
    x = torch.randn(3, 6, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert layer.weight_hh.grad is not None
    assert layer.weight_hh.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), layer(x), atol=0.02, rtol=0.02)


class Kernels(TorchDispatchMode):
    """Counts operators that compute."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("cell", CELLS)
def test_kernels_a_step(cell: str) -> None:
    counts: list[tuple[int, int]] = []
    for steps in (4, 5):
        with Kernels() as forward:
            y = RecurrentLayer(cell, 3, 4)(torch.randn(2, steps, 3))
        with Kernels() as backward:
            y.sum().backward()
        counts.append((forward.count, backward.count))
    (before, before_back), (after, after_back) = counts
    assert (after - before, after_back - before_back) == (CELLS[cell].forward, CELLS[cell].backward)


def test_layers_repeat() -> None:
    blocks = [block for block in zoo.load("lstm:layers=6").blocks if block.times > 1]
    assert [(block.name, block.times) for block in blocks] == [("layers.0..5", 6)]


def test_depth_grows_with_the_sequence() -> None:
    assert predicted("lstm:seq=70").forward.depth > 1.9 * predicted("lstm:seq=35").forward.depth


def test_an_unknown_cell_is_refused() -> None:
    with pytest.raises(BadInput, match="no recurrent cell is called 'lsmt'"):
        zoo.load("lstm:cell=lsmt")
