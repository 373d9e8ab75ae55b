"""ConvNeXt: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo

# torchvision documentation, "ConvNeXt" (num_params)
PUBLISHED = {
    "convnext-tiny": 28_589_128,
    "convnext-small": 50_223_688,
    "convnext-base": 88_591_464,
    "convnext-large": 197_767_336,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(
    "spec", ["convnext-tiny", "convnext:image=64,stochastic_depth=0.1", "convnext:image=64,dtype=bf16"]
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2)


def test_names_are_the_modules() -> None:
    assert_same_names("convnext")


def test_agrees_with_a_real_step() -> None:
    assert_agrees("convnext:image=32,width=16,stochastic_depth=0.1", batch=2, fake=False, saved=0.0)


def test_multiply_adds_of_the_paper() -> None:
    # Table 1; a "flop" there is a multiply-add
    for name, products in {"tiny": 4.5e9, "small": 8.7e9, "base": 15.4e9, "large": 34.4e9}.items():
        forward = predicted(f"convnext-{name}").forward.matrix
        assert forward / 2 == pytest.approx(products, rel=0.02), name


def test_each_stage_is_one_block() -> None:
    assert [block.times for block in zoo.load("convnext-small").blocks if block.times > 1] == [3, 3, 27, 3]


def test_an_image_that_is_too_small() -> None:
    with pytest.raises(BadInput, match="does not fit"):
        zoo.load("convnext:image=16")
