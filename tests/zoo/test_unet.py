"""U-Net: known sizes, and agreement with PyTorch."""

from itertools import pairwise

import pytest

from agreement import assert_agrees, assert_same_names, measure, predicted
from foretell.errors import BadInput
from foretell.model import zoo


def _original(classes: int) -> int:
    """The paper's network by hand: convolutions of 64 to 1024 filters with biases, 1 channel in."""
    filters = [64, 128, 256, 512, 1024]
    down = sum(9 * (a * b + b * b) + 2 * b for a, b in zip([1, *filters], filters, strict=False))
    up = sum(4 * b * a + a + 9 * (2 * a * a + a * a) + 2 * a for a, b in pairwise(filters))
    return down + up + 64 * classes + classes


def test_parameters_of_the_original() -> None:
    assert predicted("unet-original").parameters == _original(classes=2) == 31_030_658


def test_parameters_of_a_well_known_implementation() -> None:
    """31,031,685, as zhixuhao/unet (Keras) prints: a 3x3 to 2 channels and a 1x1 to 1 end it."""
    last = (9 * 64 * 2 + 2) + (2 * 1 + 1)
    assert predicted("unet-original:classes=1").parameters - (64 + 1) + last == 31_031_685


def test_parameters_of_mlperf() -> None:
    """By hand from the reference (mlcommons/training, unet3d): no bias before instance norm."""
    filters = [32, 64, 128, 256, 320, 320]
    fine = filters[:-1]
    down = sum(a * b + b * b for a, b in zip([1, *filters], filters, strict=False))
    up = sum(2 * a * a + a * a for a in fine)
    norms = 2 * 2 * (sum(filters) + sum(fine))
    ups = sum(8 * a * b + a for a, b in pairwise(filters))
    head = 32 * 3 + 3
    assert predicted("unet3d-mlperf").parameters == 27 * (down + up) + norms + ups + head == 31_190_243


@pytest.mark.parametrize(
    "spec",
    [
        "unet",
        "unet2d:image=64,norm=batch",
        "unet2d:image=64,norm=group,up=bilinear",
        "unet2d:image=64,norm=instance,up=nearest,down=strided",
        "unet2d:image=64,levels=3,dtype=bf16",
        "unet3d:image=32",
        "unet3d:image=32,norm=none,up=bilinear,levels=3",
        "unet3d-mlperf:image=64",
        "unet:levels=1,image=7",
    ],
)
def test_agrees_with_pytorch(spec: str) -> None:
    assert_agrees(spec, batch=2)


@pytest.mark.parametrize("spec", ["unet:norm=group,up=nearest", "unet3d-mlperf"])
def test_names_are_the_modules(spec: str) -> None:
    assert_same_names(spec)


@pytest.mark.parametrize("norm", ["none", "batch", "group", "instance"])
def test_saved_bytes_of_a_real_step(norm: str) -> None:
    spec = f"unet:image=32,width=8,levels=3,norm={norm}"
    assert predicted(spec, 2).saved_bytes == measure(spec, 2, fake=False).saved_bytes


def test_a_skip_is_used_again_on_the_way_up() -> None:
    graph = zoo.load("unet:levels=3,image=32")
    joined = [node for _, node in graph.nodes() if node.kind == "concatenate"]
    made_by = {output: node.path for _, node in graph.nodes() for output in node.outputs if node.kind != "view"}
    assert [made_by[node.inputs[0].tensor] for node in joined] == ["encoder.1.second.relu", "encoder.0.second.relu"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("image=100", "halved 2 times, not 4"),
        ("levels=10000000", "halved 8 times"),
        ("norm=group,groups=7", "7 groups do not divide 64"),
        ("dims=4", "4"),
        ("up=cubic", "cubic"),
    ],
)
def test_bad_fields(fields: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        zoo.load(f"unet:{fields}")
