"""EfficientNet: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.model import zoo

# torchvision documentation, "EfficientNet" (num_params)
PUBLISHED = {
    "efficientnet-b0": 5_288_548,
    "efficientnet-b1": 7_794_184,
    "efficientnet-b2": 9_109_994,
    "efficientnet-b3": 12_233_232,
    "efficientnet-b4": 19_341_616,
    "efficientnet-b5": 30_389_784,
    "efficientnet-b6": 43_040_704,
    "efficientnet-b7": 66_347_960,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(
    "spec",
    ["efficientnet-b0", "efficientnet-b2:image=64,stochastic_depth=0.2", "efficientnet:image=64,classes=10,dtype=bf16"],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2)


def test_names_are_the_modules() -> None:
    assert_same_names("efficientnet-b1")


def test_agrees_with_a_real_step() -> None:
    assert_agrees("efficientnet-b0:image=32,classes=10,stochastic_depth=0.2", batch=2, fake=False)


def test_multiply_adds_of_the_paper() -> None:
    # Table 2; a "flop" there is a multiply-add
    for name, products in {"b0": 0.39e9, "b3": 1.8e9, "b7": 37e9}.items():
        forward = predicted(f"efficientnet-{name}").forward.matrix
        assert forward / 2 == pytest.approx(products, rel=0.05), name


def test_equal_blocks_are_one() -> None:
    # b7 repeats its stages 4 7 7 10 10 13 4 times; the first of each differs from those after it
    graph = zoo.load("efficientnet-b7:stochastic_depth=0.2")
    assert [block.times for block in graph.blocks if block.times > 1] == [3, 6, 6, 9, 9, 12, 3]


def test_stochastic_depth_keeps_one_number_a_sample() -> None:
    without, with_it = predicted("efficientnet", 4), predicted("efficientnet:stochastic_depth=0.2", 4)
    adding = 9  # blocks that add their input; only the first of the network is never skipped, and it adds nothing
    assert with_it.saved_bytes - without.saved_bytes == adding * 4 * 4
