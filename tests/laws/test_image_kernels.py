"""Laws of what kernels of images cost: layouts, generations of libraries, norms that take in what follows."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.kernels import chains, kernel_seconds
from foretell.hardware.members import device
from foretell.model.operator import OperatorPart
from foretell.model.operators.convolution import Convolution
from foretell.plan.policies.precision import FORMATS
from foretell.plan.trainer import trainer
from foretell.program.action import Compute
from program_cases import program

DEVICES = ("v100-32", "a100-80", "h200", "rtx3090", "mi325x")
PARTS = ("forward", "input_gradient", "weight_gradient")
OLD_LAST, NEW_LAST = "pytorch-1-channels-last", "pytorch-channels-last"
channels = st.sampled_from([32, 64, 128, 256])
sides = st.sampled_from([14, 28, 56])


def convolution(
    part: str,
    *,
    inner: int,
    outer: int,
    side: int,
    kernel: int,
    groups: int = 1,
    space: int = 2,
    last: bool = False,
    width: int = 2,
) -> Compute:
    operator = Convolution((kernel,) * space, (1,) * space, (kernel // 2,) * space, (1,) * space)
    sizes = {"sample": 32, "group": groups, "in": inner, "out": outer}
    sizes |= dict.fromkeys(("depth", "height", "width")[-space:], side)
    cost = operator.part(part, sizes, dict.fromkeys(("x", "w", "y"), width))
    return Compute("layers.0", "convolution", part, sizes, cost, last=last)


def seconds(action: Compute, on: str, word: str, runs: str) -> float:
    return float(kernel_seconds(action, device(on), FORMATS[word], trainer(runs)).seconds)


@given(st.sampled_from(DEVICES), st.sampled_from(PARTS), channels, channels, sides)
def test_matrix_units_want_channels_last(on: str, part: str, inner: int, outer: int, side: int) -> None:
    action = convolution(part, inner=inner, outer=outer, side=side, kernel=3)
    first, last = (seconds(action, on, "amp_fp16", runs) for runs in ("pytorch", "pytorch-channels-last"))
    assert last < first


@given(st.sampled_from(DEVICES), st.sampled_from(PARTS), channels, channels, sides)
def test_older_libraries_turn_windows_of_one_position_too(on: str, part: str, ins: int, outs: int, side: int) -> None:
    one, three = (convolution(part, inner=ins, outer=outs, side=side, kernel=kernel) for kernel in (1, 3))
    assert seconds(one, on, "amp_fp16", "pytorch-1") > seconds(one, on, "amp_fp16", "pytorch")
    assert seconds(three, on, "amp_fp16", "pytorch-1") == seconds(three, on, "amp_fp16", "pytorch")


@pytest.mark.parametrize("part", PARTS)
def test_older_libraries_have_matrix_kernels_for_32_groups_with_channels_last(part: str) -> None:
    many, few = (convolution(part, inner=16, outer=16, side=28, kernel=3, groups=groups) for groups in (32, 16))
    old, new = ([seconds(one, "rtx3090", "amp_fp16", runs) for one in (many, few)] for runs in (OLD_LAST, NEW_LAST))
    assert old[0] == new[0] and old[1] > 4 * new[1]
    wide = convolution(part, inner=16, outer=16, side=28, kernel=3, groups=16, width=4)
    assert seconds(wide, "rtx3090", "tf32", OLD_LAST) == seconds(wide, "rtx3090", "tf32", NEW_LAST)


@pytest.mark.parametrize("groups", [1, 64])
def test_a_gradient_that_is_added_to_another_is_as_fast_to_make(groups: int) -> None:
    alone = convolution("input_gradient", inner=1, outer=1, side=28, kernel=3, groups=groups)
    image = 32 * groups * 28 * 28
    added = OperatorPart(vector=image, read=4 * image, written=2 * image, launches=1)
    both = msgspec.structs.replace(alone, cost=alone.cost + added)
    prices = [kernel_seconds(one, device("h200"), FORMATS["bf16"], trainer("pytorch")) for one in (alone, both)]
    assert prices[0].matrix == prices[1].matrix and prices[0].stream == pytest.approx(prices[1].stream)
    assert prices[1].after == pytest.approx(prices[0].after + 6 * image / (device("h200").memory_bandwidth * 0.8))


@pytest.mark.parametrize("word", ["amp_fp16", "tf32"])
@pytest.mark.parametrize("part", PARTS)
def test_a_model_that_turns_its_images_runs_as_with_channels_last(word: str, part: str) -> None:
    width = 4 if word == "tf32" else 2
    turned, asked = (
        convolution(part, inner=1, outer=1, groups=96, side=56, kernel=7, last=last, width=width)
        for last in (True, False)
    )
    assert seconds(turned, "h200", word, "pytorch") == seconds(asked, "h200", word, "pytorch-channels-last")


def test_wide_depthwise_windows_have_no_fp32_kernel_with_channels_last() -> None:
    """Measured on an H200: 4.2 ms where a 5 x 5 window would take a twentieth."""
    wide, usual = (
        convolution("weight_gradient", inner=1, outer=1, groups=96, side=56, kernel=kernel, last=True, width=4)
        for kernel in (7, 5)
    )
    assert seconds(wide, "h200", "fp32", "pytorch") == pytest.approx(4.2e-3, rel=0.35)
    assert seconds(usual, "h200", "fp32", "pytorch") < seconds(wide, "h200", "fp32", "pytorch") / 10


@given(st.sampled_from(["v100-32", "h200"]), channels, channels)
def test_sums_over_volumes_are_not_shared_out_in_fp32(on: str, inner: int, outer: int) -> None:
    """More filters fill idle multiprocessors: twice the work takes less than twice as long, while tiles are few."""
    less, more = (
        convolution("weight_gradient", inner=inner, outer=filters, side=28, kernel=3, space=3, width=4)
        for filters in (outer, 2 * outer)
    )
    assert seconds(more, on, "fp32", "pytorch") <= 2.001 * seconds(less, on, "fp32", "pytorch")
    few = convolution("weight_gradient", inner=4, outer=32, side=28, kernel=3, space=3, width=4)
    rate = few.cost.matrix / seconds(few, on, "fp32", "pytorch")
    assert rate < 0.05 * device(on).vector["fp32"]


@pytest.mark.parametrize("model", ["resnet18:image=64", "vgg11:image=64"])
def test_norms_take_in_what_follows(model: str) -> None:
    """Every product stays; with norms there is less to move; without them nothing changes."""
    made = program(model, "dp1", 4)
    bodies = [body for stage in made.stages for slot in "FB" for body, _ in stage.passes(slot)]
    how = device("a100-80"), FORMATS["fp16"], trainer("mxnet-nhwc")
    apart = [one for body in bodies for one in body.actions if isinstance(one, Compute)]
    joined = [one for body in bodies for one in chains(body.actions, "eager", True) if isinstance(one, Compute)]
    assert [one.path for one in joined if one.cost.matrix] == [one.path for one in apart if one.cost.matrix]
    whole, less = (sum(kernel_seconds(one, *how).seconds for one in some) for some in (apart, joined))
    if "vgg" in model:
        assert joined == apart
    else:
        assert less < 0.95 * whole
        assert not any(one.operator == "elementwise" and one.part == "input_gradient" for one in joined)
