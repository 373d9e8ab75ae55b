"""IResNet: published sizes and work, and agreement with PyTorch."""

import pytest
import torch
from torch import nn

from agreement import assert_agrees, predicted
from foretell import modules
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.totals import totals

# deepinsight/insightface, model_zoo and recognition/arcface_torch/README.md: parameters without the head (millions),
# and billions of multiplications and additions of an image
PUBLISHED = {"iresnet18": (24.0, 2.6), "iresnet34": (34.1, 4.5), "iresnet50": (43.6, 6.3), "iresnet100": (65.2, 12.1)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_size_and_work(name: str) -> None:
    millions, giga = PUBLISHED[name]
    found = predicted(f"{name}:classes=10")
    assert (found.parameters - 10 * 512) / 1e6 == pytest.approx(millions, abs=0.06)
    assert found.forward.matrix / 2e9 == pytest.approx(giga, abs=0.06)


def test_every_person_has_a_row() -> None:
    more = predicted("iresnet100:classes=360232").parameters - predicted("iresnet100:classes=1").parameters
    assert more == 360_231 * 512


@pytest.mark.parametrize("spec", ["iresnet18:image=32,classes=10", "iresnet34:image=48,classes=20,embedding=64"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)


def test_slopes_are_trained() -> None:
    model = modules.build("iresnet18:image=32,classes=10")
    sample = modules.example("iresnet18:image=32,classes=10", 4)
    sample.loss(model(*sample.inputs), sample.target).backward()
    slopes = [part.weight.grad for part in model.modules() if isinstance(part, nn.PReLU)]
    assert len(slopes) == 1 + 8
    assert all(isinstance(one, torch.Tensor) and one.abs().max() > 0 for one in slopes)


def test_blocks_repeat() -> None:
    times = [block.times for block in zoo.load("iresnet100").blocks]
    assert 29 in times and totals(zoo.load("iresnet100")).parameters > 100e6


def test_an_image_that_is_not_halved_often_enough() -> None:
    with pytest.raises(BadInput, match="image=100") as problem:
        zoo.load("iresnet100:image=100")
    assert "image=96" in str(problem.value)
