"""Work and depth by hand: Tables 4 and 6 of Ben-Nun and Hoefler, and their LeNet."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.model import zoo
from foretell.model.analysis import analyze
from foretell.model.build import Builder, dims
from foretell.model.convolution_methods import methods, winograd, winograd_whole
from foretell.model.graph import Graph
from foretell.model.operator import Operator, Sizes
from foretell.model.operators import operators
from foretell.model.operators.convolution import Convolution, convolution
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.pooling import pool
from foretell.model.work_depth import appendix_work, bounds, work_depth

WIDTHS = dict.fromkeys("xwbyz", 4)


def cost(operator: Operator, part: str, n: Sizes) -> tuple[int, int]:
    found = operator.part(part, n, WIDTHS)
    return found.work, found.depth


def made(tag: str, **fields: object) -> Operator:
    return operators()[tag](**fields)


DENSE = made("matmul"), {"batch": 1, "row": 8, "in": 16, "out": 12}
CONVOLUTION = Convolution((5, 5), (1, 1), (0, 0), (1, 1)), {
    "sample": 2, "group": 1, "in": 6, "out": 16, "height": 10, "width": 10,
}  # fmt: skip
POOL = (
    made("pool", function="max", kernel=(2, 2), stride=(2, 2)),
    {"sample": 2, "channel": 6, "height": 14, "width": 14},
)
NORM = made("normalize", kind="batch"), {"group": 64, "member": 32 * 56 * 56, "affine": 64}
RELU = made("elementwise", function="relu"), {"item": 2 * 3 * 4 * 5}

TABLE_4 = [
    (RELU, "forward", 120, 1),
    (RELU, "input_gradient", 120, 1),
    (DENSE, "forward", 8 * 16 * 12, 4),  # log2 of 16 inputs
    (DENSE, "weight_gradient", 1536, 3),  # log2 of 8 samples
    (DENSE, "input_gradient", 1536, 4),  # log2 of 12 outputs, rounded up
    (CONVOLUTION, "forward", 2 * 16 * 6 * 100 * 25, 3 + 3 + 3),
    (CONVOLUTION, "weight_gradient", 480_000, 9),
    (CONVOLUTION, "input_gradient", 480_000, 9),
    (POOL, "forward", 2 * 6 * 28 * 28, 1 + 1),  # every input once
    (POOL, "input_gradient", 2 * 6 * 14 * 14, 1),  # one winner a window
    (NORM, "forward", 6_422_528, 17),  # 100,352 members
    (NORM, "weight_gradient", 6_422_528, 17),
    (NORM, "input_gradient", 6_422_528, 17),
]


@pytest.mark.parametrize(("case", "part", "work", "depth"), TABLE_4)
def test_table_4(case: tuple[Operator, dict[str, int]], part: str, work: int, depth: int) -> None:
    assert cost(case[0], part, case[1]) == (work, depth)


# which loops the depth of a part grows with, one level a doubling; the work is linear in all of them
GROWTH = [
    (RELU, "forward", set[str]()),
    (DENSE, "forward", {"in"}),
    (DENSE, "weight_gradient", {"row"}),
    (DENSE, "input_gradient", {"out"}),
    (CONVOLUTION, "forward", {"in"}),
    (POOL, "forward", set[str]()),
    (NORM, "forward", {"member"}),
]


@pytest.mark.parametrize(("case", "part", "deeper"), GROWTH)
def test_work_is_linear_and_depth_logarithmic(
    case: tuple[Operator, dict[str, int]], part: str, deeper: set[str]
) -> None:
    operator, n = case
    work, depth = cost(operator, part, n)
    for loop in set(n) - {"affine"}:
        more = cost(operator, part, {**n, loop: 16 * n[loop]})
        assert more == (16 * work, depth + (4 if loop in deeper else 0)), loop


def square(samples: int, inner: int, outer: int, size: int, kernel: int) -> tuple[Convolution, dict[str, int]]:
    """A convolution that keeps its size."""
    pad = kernel // 2
    operator = Convolution((kernel, kernel), (1, 1), (pad, pad), (1, 1))
    return operator, {"sample": samples, "group": 1, "in": inner, "out": outer, "height": size, "width": size}


def test_table_6() -> None:
    found = methods(*square(1, 64, 128, 32, 3), tile=4)
    assert found["direct"] == (128 * 32 * 32 * 64 * 9, 6 + 2 + 2) == (75_497_472, 10)
    assert found["im2col"] == found["direct"]
    # 1024 positions: 1024 * 10 * (128 * 64 + 64 + 128) + 1024 * 64 * 128
    assert found["fft"] == (85_852_160 + 8_388_608, 2 * 10 + 6)
    # a = 4 - 3 + 1 = 2: 2 * (9 + 6 + 8 + 8 + 16) = 94, and 8 * 8 tiles
    assert found["winograd"] == (94 + 128 * 64 * 64, 2 * 2 + 4 * 1 + 6) == (524_382, 14)


def test_winograd_with_the_tile_of_lavin_and_gray() -> None:
    # a = 4 + 3 - 1 = 6: 6 * (9 + 18 + 72 + 24 + 16) = 834
    found = methods(*square(1, 64, 128, 32, 3), tile=4, lavin_gray=True)
    assert found["winograd"] == (834 + 524_288, 2 * 2 + 4 * 3 + 6) == (525_122, 22)
    # F(2 x 2, 3 x 3) with a = 4: matrices 4x3, 4x4 and 2x4 on both sides of the kernel, the tile and the products
    by_matrices = (4 * 3 * 3 + 4 * 3 * 4) + 2 * 4 * 4 * 4 + (2 * 4 * 4 + 2 * 4 * 2)
    assert winograd(1, 1, 1, 2, 3, lavin_gray=True)[0] == by_matrices + 1
    # the printed a = m - r + 1 is 0 here, and no tile is left
    assert "winograd" not in methods(*square(1, 1, 1, 4, 3), tile=2)


def test_fft_of_a_plane_that_is_no_power_of_two() -> None:
    operator, n = square(2, 3, 5, 6, 3)
    work, depth = methods(operator, n)["fft"]
    # 36 * log2(36) = 186.12, rounded up
    assert (work, depth) == (187 * (5 * 3 + 2 * 3 + 2 * 5) + 36 * 2 * 3 * 5, 2 * 6 + 2)
    assert methods(operator, n, constant=5)["fft"][0] == 5 * 187 * 31 + 1080


def test_methods_take_arrays() -> None:
    operator, n = square(1, 64, 128, 32, 3)
    arrays = {loop: np.array([size, 2 * size]) for loop, size in n.items() if loop != "group"}
    together = methods(operator, {**arrays, "group": 1})
    alone = methods(operator, n)
    for method, (work, depth) in alone.items():
        assert (together[method][0][0], together[method][1][0]) == (work, depth)


@pytest.mark.parametrize(
    "operator",
    [
        Convolution((3, 3), (2, 2), (1, 1), (1, 1)),
        Convolution((3, 3), (1, 1), (1, 1), (2, 2)),
        Convolution((3,), (1,), (1,), (1,)),
        Convolution((3, 3), (1, 1), (1, 1), (1, 1), transposed=True),
    ],
)
def test_table_6_says_nothing_of_other_convolutions(operator: Convolution) -> None:
    n = {"sample": 1, "group": 1, "in": 4, "out": 4, "height": 8, "width": 8}
    if len(operator.kernel) == 1:
        del n["height"]
    assert set(methods(operator, n)) == {"direct", "im2col"}


def lenet() -> Graph:
    """LeNet-5 without activations and biases, on digits of 28 pixels."""
    g = Builder("lenet")
    x = g.input("image", dims(sample=1, channel=1, height=28, width=28))
    x = convolution(g, x, 6, 5, padding=2, bias=False)
    x = pool(g, x, "average", 2)
    x = convolution(g, x, 16, 5, bias=False)
    x = pool(g, x, "average", 2)
    x = view(g, x, dims(sample=1, feature=400))
    for width in (120, 84, 10):
        x = linear(g, x, dims(feature=width), bias=False)
    return g.graph()


def test_lenet() -> None:
    """The printed work, and what is counted here; see studies/lenet_work_depth."""
    graph = lenet()
    assert appendix_work(graph) == 665_832
    ours = work_depth(graph)
    products = 6 * 28 * 28 * 25 + 16 * 6 * 10 * 10 * 25 + 120 * 400 + 84 * 120 + 10 * 84
    assert products == 416_520
    assert ours.work == products + 6 * 28 * 28 + 16 * 10 * 10
    assert ours.depth == 6 + 2 + 9 + 2 + 9 + 7 + 7 == 42  # 41 in the paper
    assert ours.parallelism == ours.work / 42


def test_lenet_of_the_zoo() -> None:
    """Images of 32 pixels that are not padded: their border counts as input of the first layer."""
    graph = zoo.load("lenet")
    assert appendix_work(graph) == 665_832 + 6 * 25 * (32 * 32 - 28 * 28)


def test_a_step_by_hand() -> None:
    """x[8, 16] -> 12 -> 4 features, and nothing else."""
    g = Builder("two layers")
    x = g.input("x", dims(sample=8, feature=16))
    for width in (12, 4):
        x = linear(g, x, dims(feature=width), bias=False)
    graph = g.graph()
    assert (work_depth(graph).work, work_depth(graph).depth) == (8 * 16 * 12 + 8 * 12 * 4, 4 + 4)
    step = work_depth(graph, step=True)
    # forward, both weight gradients, and the input gradient of the second layer only
    assert step.work == 2 * 8 * 16 * 12 + 3 * 8 * 12 * 4
    # forward 8, then back through 4 outputs (2), then the first layer's sum over 8 samples (3)
    assert step.depth == 8 + 2 + 3


def test_bounds() -> None:
    assert bounds(1000, 10, 4) == (250, 260)
    assert bounds(1000, 10, 1000) == (10, 11)
    low, high = bounds(1000, 10, np.array([4, 1000]))
    assert low.tolist() == [250, 10]
    assert high.tolist() == [260, 11]


def test_winograd_with_everything_counted() -> None:
    """F(4 x 4, 3 x 3): 36 products make 16 outputs of 9, and the transforms are on top."""
    assert winograd_whole(1, 1, 1, 4, 3)[0] == winograd(1, 1, 1, 4, 3, lavin_gray=True)[0] - 1 + 36
    operator, n = square(8, 256, 256, 32, 3)
    whole, direct = methods(operator, n, whole=True)["winograd"][0], methods(operator, n)["direct"][0]
    assert 36 / 144 < whole / direct < 1.5 * 36 / 144


def test_every_operator_has_its_work_and_depth() -> None:
    """LeNet's layers by hand (Table 4); a chain's add up to the whole."""
    found = analyze(zoo.load("lenet"))
    rows = {row.name: row for row in found.operators}
    first, dense = rows["features.0 convolution"], next(row for name, row in rows.items() if name.endswith("matmul"))
    assert (first.work, first.depth) == (6 * 28 * 28 * 25, 3 + 3)
    assert (first.weight_gradient_work, first.input_gradient_work) == (first.work, 0)  # images have no gradient
    assert dense.weight_gradient_work == dense.input_gradient_work == dense.work
    assert sum(row.work for row in found.operators) == found.work
    assert sum(row.depth for row in found.operators) == found.depth
