"""DiT: published sizes, agreement with PyTorch, training."""

import pytest
import torch

from agreement import assert_agrees, assert_same_names, predicted
from foretell import modules
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo.dit import PRESETS

# The paper's table 4, in millions; of XL/2 as the released code counts them, positions included
EXACT = {"dit-xl-2": 675_129_632}
ROUNDED = {"dit-s-2": 33, "dit-s-4": 33, "dit-s-8": 33, "dit-b-2": 130, "dit-b-4": 130, "dit-b-8": 131}
ROUNDED |= {"dit-l-2": 458, "dit-l-4": 458, "dit-l-8": 459, "dit-xl-4": 675, "dit-xl-8": 676}

SMALL = "layers=2,hidden=64,heads=4,image=8,classes=10"


@pytest.mark.parametrize(("name", "count"), EXACT.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(("name", "millions"), ROUNDED.items())
def test_parameters_as_rounded(name: str, millions: int) -> None:
    assert abs(predicted(name).parameters / 1e6 - millions) < 1


def test_every_size_is_published() -> None:
    assert {*EXACT, *ROUNDED, "dit"} == set(PRESETS)


def test_forward_work_is_that_of_the_paper() -> None:
    """118.6 Gflop of XL/2, a multiply and an add as one (table 4): of one image, products alone here."""
    assert predicted("dit-xl-2").forward.matrix / 2e9 == pytest.approx(118.6, rel=0.01)


@pytest.mark.parametrize("spec", [f"dit:{SMALL}", f"dit:{SMALL},patch=4,dtype=bf16", f"dit:{SMALL},attention=math"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.005)
    assert_same_names(spec)


def test_trains() -> None:
    torch.manual_seed(0)
    module, example = modules.build(f"dit:{SMALL}"), modules.example(f"dit:{SMALL}", 2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=5e-3)
    losses: list[float] = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = example.loss(module(*example.inputs), example.target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(weight.grad is not None for weight in module.parameters() if weight.requires_grad)


def test_patches_tile_the_image() -> None:
    with pytest.raises(BadInput, match="patch=5"):
        zoo.load("dit:patch=5")
