"""VGG: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, predicted

# torchvision documentation, "VGG" (num_params)
PUBLISHED = {"vgg11": 132_863_336, "vgg13": 133_047_848, "vgg16": 138_357_544, "vgg19": 143_667_240}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize("spec", ["vgg16", "vgg16-bn:image=64", "vgg11:classes=10,dtype=bf16"])
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2)
