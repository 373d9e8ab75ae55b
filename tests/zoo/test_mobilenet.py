"""MobileNet: published sizes, and agreement with PyTorch."""

import pytest

from agreement import assert_agrees, assert_same_names, predicted
from foretell.errors import BadInput
from foretell.model import zoo
from foretell.model.zoo._convolutional import rounded

PUBLISHED = {
    # Keras applications: 4,253,864 with the 21,888 running means and variances of batch norm
    "mobilenet-v1": 4_253_864 - 21_888,
    # torchvision documentation, "MobileNet V2" and "MobileNet V3" (num_params)
    "mobilenet-v2": 3_504_872,
    "mobilenet-v3-large": 5_483_032,
    "mobilenet-v3-small": 2_542_856,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters(name: str, count: int) -> None:
    assert predicted(name).parameters == count


@pytest.mark.parametrize(
    "spec",
    [
        "mobilenet-v1:image=96",
        "mobilenet-v2",
        "mobilenet-v2:multiplier=0.5,image=64",
        "mobilenet-v3-large:image=128",
        "mobilenet-v3-small:image=64,dtype=bf16",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2)


@pytest.mark.parametrize("spec", ["mobilenet-v1", "mobilenet-v3-small"])
def test_names_are_the_modules(spec: str) -> None:
    assert_same_names(spec)


def test_agrees_with_a_real_step() -> None:
    assert_agrees("mobilenet-v3-small:image=32,classes=10", batch=2, fake=False)


def test_multiply_adds_of_the_papers() -> None:
    # v1: 569 million, Table 4; v2: 300 million, Table 4; v3: 219 and 56 million, Table 3
    published = {"v1": 569e6, "v2": 300e6, "v3-large": 219e6, "v3-small": 56e6}
    for variant, products in published.items():
        forward = predicted(f"mobilenet-{variant}").forward.matrix
        assert forward / 2 == pytest.approx(products, rel=0.03), variant


def test_equal_blocks_are_one() -> None:
    assert [block.times for block in zoo.load("mobilenet-v1").blocks].count(5) == 1  # five of 512 filters


@pytest.mark.parametrize(("channels", "expected"), [(3, 8), (8, 8), (12, 16), (11.9, 16), (18, 24), (91, 88)])
def test_rounding_never_loses_a_tenth(channels: float, expected: int) -> None:
    assert rounded(channels) == expected >= 0.9 * channels


@pytest.mark.parametrize("fields", ["variant=v4", "multiplier=0", "multiplier=-1", "image=0"])
def test_bad_fields(fields: str) -> None:
    with pytest.raises(BadInput):
        zoo.load(f"mobilenet:{fields}")
