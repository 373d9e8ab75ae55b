"""What a split of each loop needs, operator by operator; and halos against PyTorch's own convolution."""

from __future__ import annotations

import pytest

from foretell.model.operator import Need
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.pooling import Pool
from laws.instances import INSTANCES, Instance

NEEDS = {
    "matmul": {"batch": "nothing", "row": "nothing", "in": "partial sums", "out": "nothing"},
    "grouped_matmul": {"row": "nothing", "in": "partial sums", "out": "nothing", "expert": "exchange"},
    "attention": {"sample": "nothing", "kv_head": "nothing", "query": "nothing", "key": "gather", "qk": "partial sums"},
    "normalize": {"group": "nothing", "member": "statistics"},
    "softmax": {"row": "nothing", "class": "statistics"},
    "cross_entropy": {"row": "partial sums", "class": "statistics"},
    "embedding": {"row": "nothing", "vocab": "partial sums", "feature": "nothing"},
    "recurrent": {"sample": "nothing", "sequence": "sequential", "in": "partial sums", "out": "gather"},
    "reduce": {"kept": "nothing", "reduced": "partial sums"},
    "scatter_add": {"row": "partial sums", "target": "exchange", "feature": "nothing"},
    "top_k": {"row": "nothing", "class": "gather", "chosen": "whole"},
    "rotary": {"row": "nothing", "position": "nothing", "feature": "exchange", "angle": "exchange"},
    "elementwise": {"item": "nothing"},
    "unknown": {"item": "whole", "read": "whole"},
}


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda i: repr(i.operator)[:60])
def test_needs(instance: Instance) -> None:
    tag = str(type(instance.operator).__struct_config__.tag)
    for loop, need in NEEDS.get(tag, {}).items():
        assert instance.operator.need(loop) == need, loop


CONVOLUTIONS = [
    # kernel, stride, padding, dilation of height and width; halo of each
    ((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)),
    ((1, 7), (1, 1), (0, 3), (1, 1), (0, 0), (3, 3)),
    ((1, 1), (2, 2), (0, 0), (1, 1), (0, 0), (0, 0)),
    ((16, 16), (16, 16), (0, 0), (1, 1), (0, 0), (0, 0)),
    ((7, 7), (2, 2), (3, 3), (1, 1), (3, 2), (3, 2)),
    ((3, 3), (1, 1), (2, 2), (2, 2), (2, 2), (2, 2)),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "height", "width"), CONVOLUTIONS)
def test_halos(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int],
    height: tuple[int, int], width: tuple[int, int],
) -> None:  # fmt: skip
    operator = Convolution(kernel, stride, padding, dilation)
    assert (operator.halo("height"), operator.halo("width")) == (height, width)
    assert operator.need("height") == (Need.HALO if any(height) else Need.NOTHING)
    assert operator.need("in") == Need.SUM
    assert operator.need("out") == operator.need("sample") == Need.NOTHING


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [c[:4] for c in CONVOLUTIONS])
def test_a_share_with_its_halo_gives_the_share_of_the_output(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int]
) -> None:
    """Two ranks, each with its rows and the halo that the operator says, make what one makes."""
    torch = pytest.importorskip("torch")
    operator = Convolution(kernel, stride, padding, dilation)
    rows = 32
    x, w = torch.randn(1, 2, rows, 32, dtype=torch.float64), torch.randn(3, 2, *kernel, dtype=torch.float64)
    convolve = torch.nn.functional.conv2d
    whole = convolve(x, w, None, stride, padding, dilation)
    before, after = operator.halo("height")
    half, made = rows // 2, whole.shape[2] // 2
    padded = torch.nn.functional.pad(x, (0, 0, before, max(after, padding[0])))
    for rank in range(2):
        share = padded[:, :, rank * half : rank * half + before + half + after]
        part = convolve(share, w, None, stride, (0, padding[1]), dilation)
        expected = whole[:, :, rank * made : (rank + 1) * made]
        torch.testing.assert_close(part[:, :, :made], expected)


def test_pooling_without_overlap_needs_nothing() -> None:
    assert Pool("max", (2, 2), (2, 2)).need("height") == Need.NOTHING
    assert Pool("max", (3, 3), (2, 2)).halo("height") == (0, 1)
