"""ResNet, ResNeXt, Wide ResNet: published sizes and work, agreement with PyTorch, repetition."""

import pytest

import foretell
from agreement import assert_agrees, predicted
from foretell.errors import BadInput
from foretell.model import zoo

# torchvision documentation, "ResNet", "ResNeXt", "Wide ResNet": num_params, GFLOPS (multiply-adds)
PUBLISHED = {
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "resnext50-32x4d": (25_028_904, 4.23),
    "resnext101-32x8d": (88_791_336, 16.41),
    "resnext101-64x4d": (83_455_272, 15.46),
    "wide-resnet50-2": (68_883_240, 11.40),
    "wide-resnet101-2": (126_886_696, 22.75),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_size_and_work(name: str) -> None:
    count, giga = PUBLISHED[name]
    totals = predicted(name)
    assert totals.parameters == count
    assert totals.forward.matrix / 2e9 == pytest.approx(giga, abs=0.006)


def test_the_paper_strides_on_the_1x1() -> None:
    # He et al. 2016, Table 1: 3.8 billion multiply-adds for the 50-layer net
    assert predicted("resnet50:strided_1x1=true").forward.matrix / 2e9 == pytest.approx(3.8, abs=0.07)


@pytest.mark.parametrize(
    "spec",
    [
        "resnet50",
        "resnet18:image=64,classes=10",
        "resnet50:image=64,strided_1x1=true",
        "resnext50-32x4d:image=64",
        "wide-resnet50-2:image=64",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2, saved=0.0)


def test_agrees_in_bf16() -> None:
    # the CPU keeps batch statistics in bf16, a GPU in fp32
    assert_agrees("resnet50:image=96,dtype=bf16", batch=2)


def test_blocks_repeat() -> None:
    blocks = {block.name: block.times for block in zoo.load("resnet152").blocks if block.times > 1}
    assert blocks == {"layer1.1..2": 2, "layer2.1..7": 7, "layer3.1..35": 35, "layer4.1..2": 2}


def test_groups_need_a_bottleneck() -> None:
    with pytest.raises(BadInput, match="32 of 64"):
        zoo.load("resnet18:groups=32")


@pytest.mark.parametrize("plan", ["tp2", "filter2", "channel2"])
def test_filters_of_groups_are_whole_on_every_rank(plan: str) -> None:
    """They are a dim of two loops, groups and filters, which no axis divides; what lies around them is divided."""
    whole, divided = (
        foretell.predict("resnext50-32x4d", "2xh100", text, 8).memory.by_kind["weights"] for text in ("dp1", plan)
    )
    assert whole / 2 < divided < whole
