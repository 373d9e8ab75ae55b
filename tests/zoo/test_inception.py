"""Inception v3: published sizes and work, agreement with PyTorch, the auxiliary head."""

import pytest
import torch

from agreement import assert_agrees, predicted
from foretell import modules
from foretell.errors import BadInput
from foretell.model import zoo

# torchvision documentation, "Inception V3" (num_params). Without the auxiliary head: Keras documents 23,851,784
# for InceptionV3, 34,432 of them running statistics, and its 17,216 normalised channels have no scale
PUBLISHED = {"inception-v3": 27_161_264, "inception-v3:aux=false": 23_851_784 - 34_432 + 17_216}


@pytest.mark.parametrize(("spec", "count"), PUBLISHED.items())
def test_parameters(spec: str, count: int) -> None:
    assert predicted(spec).parameters == count


def test_the_auxiliary_head_is_a_field() -> None:
    assert predicted("inception-v3:aux=false").parameters == 23_834_568


def test_work() -> None:
    # torchvision documentation: 5.71 billion multiply-adds an image, auxiliary head apart
    assert predicted("inception-v3:aux=false").forward.matrix / 2e9 == pytest.approx(5.71, abs=0.005)


@pytest.mark.parametrize("spec", ["inception-v3:dropout=0", "inception-v3:image=139,aux=false,dropout=0"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)


def test_agrees_with_dropout() -> None:
    # the CPU keeps a dropout mask in the activations' type, a GPU as bytes
    assert_agrees("inception-v3:aux=false", batch=2)


def test_the_auxiliary_head_is_for_training() -> None:
    with torch.device("meta"):
        module = modules.build("inception-v3:classes=10")
        sample = modules.example("inception-v3:classes=10", batch=2)
        assert [y.shape for y in module(*sample.inputs)] == [(2, 10), (2, 10)]
        assert module.eval()(*sample.inputs).shape == (2, 10)


def test_a_small_image_is_refused() -> None:
    with pytest.raises(BadInput, match="does not fit"):
        zoo.load("inception-v3:image=139")
