"""Laws of what kernels cost, over every operator and part."""

from __future__ import annotations

import functools
import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.kernels import FAMILIES, ORIGINS, KernelPrice, chains, families, kernel_seconds, update_seconds
from foretell.cost.kernels._reached import held_back
from foretell.hardware.cluster import Device
from foretell.hardware.members import device, names
from foretell.model.attention import SCORELESS
from foretell.model.operator import PARTS, OperatorPart
from foretell.model.operators import operators
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.matmul import IN_PIECES
from foretell.model.optimizer import OPTIMIZERS, update_rule
from foretell.plan.policies.precision import FORMATS
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Compute, Update
from law_examples import examples
from laws.instances import INSTANCES, Instance
from program_cases import program

KINDS = {(type(one.operator), len(one.sizes)): one for one in INSTANCES}
every = pytest.mark.parametrize("instance", KINDS.values(), ids=lambda one: repr(one.operator)[:40])
TRAINERS = ("pytorch", "pytorch-compiled", "megatron-deepspeed", "llm-foundry")
LAYER = "layers.0.feed_forward"


@functools.cache
def plain() -> Trainer:
    """A trainer whose layers move what the graph says."""
    usual = trainer("pytorch")
    return msgspec.structs.replace(usual, fusion=msgspec.structs.replace(usual.fusion, hidden_passes=(("any", 10.0),)))


def action(instance: Instance, part: str, sizes: dict[str, int] | None = None) -> Compute:
    sizes = sizes or dict(instance.sizes)
    tag = str(type(instance.operator).__struct_config__.tag)
    return Compute(LAYER, tag, part, sizes, instance.operator.part(part, sizes, instance.widths))


def faster(on: Device, factor: float) -> Device:
    return msgspec.structs.replace(
        on,
        name=f"{on.name} x {factor}",
        architecture=on.architecture,
        peak={word: rate * factor for word, rate in on.peak.items()},
        vector={word: rate * factor for word, rate in on.vector.items()},
        memory_bandwidth=on.memory_bandwidth * factor,
        clock_hz=on.clock_hz * factor,
        launch_seconds=on.launch_seconds / factor,
    )


def test_every_family_prices_operators_that_exist() -> None:
    assert set(families()) <= {*operators(), SCORELESS, IN_PIECES}  # what some kernels are priced as
    assert sum(len(FAMILIES[name].OPERATORS) for name in FAMILIES) == len(families()), "an operator with two families"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("classes", [500, 50_257, 128_256])
def test_a_product_in_pieces_is_no_faster_than_a_whole_one(part: str, classes: int) -> None:
    """And just as fast where one piece is all rows, but for what is added to the gradient of the weight."""
    made = program(f"llama:layers=1,hidden=1024,heads=8,ffn=1024,vocab={classes},seq=512", "dp1 +bf16", batch=4)
    done = [action for kind in made.kinds for action, _ in made.computations(kind) if isinstance(action, Compute)]
    head = next(one for one in done if one.operator == "matmul" and one.loops["out"] == classes and one.part == part)
    whole, pieces = (
        kernel_seconds(
            msgspec.structs.replace(head, operator=kind), device("h100"), FORMATS["bf16"], trainer("pytorch")
        )
        for kind in ("matmul", IN_PIECES)
    )
    if classes <= 1024 and part != "weight_gradient":
        assert pieces.seconds == pytest.approx(whole.seconds)
    else:
        assert pieces.seconds > whole.seconds


@every
@examples(12)
@given(
    data=st.data(),
    part=st.sampled_from(PARTS),
    word=st.sampled_from(["fp32", "amp_bf16", "fp8"]),
    trained=st.sampled_from(TRAINERS),
)
def test_an_array_of_sizes_is_each_size_alone(
    instance: Instance, data: st.DataObject, part: str, word: str, trained: str
) -> None:
    count = 3
    most = 60 if len(instance.sizes) > 4 else 700  # so that the work fits 64 bits
    columns = {
        loop: data.draw(st.lists(st.integers(1, most), min_size=count, max_size=count)) for loop in instance.sizes
    }
    if "batch" in columns:
        columns["batch"] = [1] * count
    arrays = {loop: np.array(column, dtype=np.int64) for loop, column in columns.items()}
    how = device("h100"), FORMATS[word], trainer(trained)
    together = kernel_seconds(action(instance, part, arrays), *how)  # type: ignore[arg-type]
    for at in range(count):
        alone = kernel_seconds(action(instance, part, {loop: column[at] for loop, column in columns.items()}), *how)
        assert np.broadcast_to(together.seconds, (count,))[at] == alone.seconds
        assert np.broadcast_to(together.launches, (count,))[at] == alone.launches
        assert np.broadcast_to(together.bound, (count,))[at] == alone.bound


@every
@examples(12)
@given(data=st.data(), part=st.sampled_from(PARTS), trained=st.sampled_from(TRAINERS))
def test_more_work_is_never_faster(instance: Instance, data: st.DataObject, part: str, trained: str) -> None:
    """In whole vectors: a row that begins at one is faster than a shorter one that does not (studies/h200_kernels).

    The channels of a convolution choose its kernel: three are slower than four, a group of one than many. Experts share
    the rows out among them.
    """
    how = device("a100-80"), FORMATS["bf16"], trainer(trained)
    vectors = st.integers(1, 400).map(lambda count: 8 * count)
    sizes = {loop: data.draw(vectors, label=loop) for loop in instance.sizes}
    before = kernel_seconds(action(instance, part, sizes), *how).seconds
    chooses = ("group", "in", "out") if isinstance(instance.operator, Convolution) else ("expert",)
    for loop in (loop for loop in sizes if loop not in chooses):
        more = {**sizes, loop: sizes[loop] + data.draw(st.integers(1, 60)) * 8}
        assert kernel_seconds(action(instance, part, more), *how).seconds >= before * (1 - 1e-12), loop


@every
def test_more_bytes_are_never_faster(instance: Instance) -> None:
    how = device("v100-16"), FORMATS["fp32"], trainer("pytorch")
    for part in PARTS:
        one = action(instance, part)
        for field in ("vector", "read", "written", "launches"):
            more = msgspec.structs.replace(one, cost=one.cost + OperatorPart(**{field: 1000}))
            assert kernel_seconds(more, *how).seconds >= kernel_seconds(one, *how).seconds, (part, field)


@every
@pytest.mark.parametrize("factor", [1.01, 2.5])
def test_a_faster_device_is_never_slower(instance: Instance, factor: float) -> None:
    on = device("h100")
    for part in PARTS:
        for word in ("fp32", "bf16", "fp8"):
            for trained in TRAINERS:
                how = FORMATS[word], trainer(trained)
                one = action(instance, part, {loop: 37 * size for loop, size in instance.sizes.items()})
                slow, fast = (kernel_seconds(one, it, *how).seconds for it in (on, faster(on, factor)))
                assert fast <= slow * (1 + 1e-12), (part, word, trained)


@every
@pytest.mark.parametrize("name", ["v100-16", "h100", "mi300x", "cpu"])
def test_no_kernel_is_faster_than_the_data_sheet(instance: Instance, name: str) -> None:
    on, form = device(name), FORMATS["fp32"]
    for part, times in ((part, times) for part in PARTS for times in (1, 31)):
        one = action(instance, part, {loop: times * size for loop, size in instance.sizes.items()})
        price = kernel_seconds(one, on, form, plain())
        products = 4 / 9 if one.operator == "convolution" else 1.0  # Winograd's of the direct ones
        assert price.seconds >= products * one.cost.matrix / on.matrix_rate("fp32")
        assert price.seconds >= (one.cost.read + one.cost.written) / on.memory_bandwidth
        assert price.seconds >= price.launches * on.launch_seconds
        assert price.bound in ("matrix", "memory", "launch")
        assert price.provenance in ORIGINS


def test_a_price_is_the_sum_of_what_it_says() -> None:
    assert KernelPrice(3.0, 2.0, 1.0, 0.5, 4, "measured").seconds == 4.5
    assert KernelPrice(3.0, 2.0, 1.0, 0.5, 4, "measured").bound == "matrix"
    assert KernelPrice(1.0, 2.0, 1.0, 0.5, 4, "measured").bound == "memory"
    assert KernelPrice(1.0, 2.0, 1.0, 3.5, 4, "measured").bound == "launch"


def product(path: str, rows: int = 8192, ins: int = 4096, outs: int = 4096, batch: int = 1) -> Compute:
    sizes = {"batch": batch, "row": rows, "in": ins, "out": outs}
    widths = dict.fromkeys(("x", "w", "y"), 2)
    return Compute(path, "matmul", "forward", sizes, operators()["matmul"]().part("forward", sizes, widths))


@pytest.mark.parametrize("part", ["forward", "input_gradient"])
def test_a_limit_of_power_slows_attention_as_it_slows_products(part: str) -> None:
    attention = next(i for i in INSTANCES if type(i.operator).__struct_config__.tag == "attention")
    sizes = {**attention.sizes, "sample": 8, "kv_head": 16, "share": 1, "query": 4096, "key": 4096}
    free, limited = (
        kernel_seconds(action(attention, part, sizes), device(name), FORMATS["bf16"], trainer("fsdp")).matrix
        for name in ("h100", "h100-500w")
    )
    assert limited == pytest.approx(free * 0.72 / 0.62)
    assert held_back(device("h100")) == held_back(device("rtx4090")) == 1


def test_fewer_bits_are_for_the_products_of_layers_only() -> None:
    on, usual = device("h100"), trainer("megatron-core")
    attention = next(i for i in INSTANCES if type(i.operator).__struct_config__.tag == "attention")
    for part in ("forward", "input_gradient"):
        one = action(attention, part)
        assert kernel_seconds(one, on, FORMATS["fp8"], usual) == kernel_seconds(one, on, FORMATS["bf16"], usual)
    head, batched = product("head"), product(LAYER, batch=8)
    for one in (head, batched):
        assert kernel_seconds(one, on, FORMATS["fp8"], usual) == kernel_seconds(one, on, FORMATS["bf16"], usual)
    low, full = (kernel_seconds(product(LAYER), on, FORMATS[word], usual) for word in ("fp8", "bf16"))
    assert 1.7 < full.matrix / low.matrix < 2.0
    assert low.after > 0  # casts


def test_waves_are_quantised_but_tiles_are_chosen() -> None:
    """Time grows in steps as rows are added, and no step is a second wave of the largest tile."""
    on, usual = device("a100-80"), trainer("pytorch")
    rows = range(2048, 4097, 32)
    seconds = [kernel_seconds(product(LAYER, rows=n), on, FORMATS["bf16"], usual).matrix for n in rows]
    steps = [later / earlier for earlier, later in itertools.pairwise(seconds)]
    assert any(step == 1 for step in steps)
    assert 1.01 < max(steps) < 1.5


def test_long_sums_of_small_results_are_shared_out() -> None:
    on, usual = device("v100-16"), trainer("pytorch")
    thin = kernel_seconds(product(LAYER, rows=64, ins=500_000, outs=64), on, FORMATS["fp32"], usual)
    alone = 2 * 64 * 64 * 500_000 / (on.matrix_rate("fp32") / on.multiprocessors)
    assert thin.matrix < alone / 8


def test_flash_kernels_leave_multiprocessors_idle_where_there_are_few_blocks() -> None:
    attention = next(i for i in INSTANCES if type(i.operator).__struct_config__.tag == "attention")
    sizes = {**attention.sizes, "sample": 1, "kv_head": 1, "share": 1, "query": 512, "key": 4096}
    on, form, usual = device("a100-80"), FORMATS["bf16"], trainer("pytorch")
    few = kernel_seconds(action(attention, "forward", sizes), on, form, usual)
    more = kernel_seconds(action(attention, "forward", {**sizes, "kv_head": 16}), on, form, usual)
    assert more.matrix == pytest.approx(few.matrix)  # 4 blocks leave room beside them for 60 more


@pytest.mark.parametrize("rule", tuple(OPTIMIZERS))
@pytest.mark.parametrize("word", FORMATS)
def test_an_update_moves_every_state(rule: str, word: str) -> None:
    on, form = device("h100"), FORMATS[word]
    cost = update_rule(rule).cost(10**9, {"w": form.weight, "g": form.gradient, "s": form.state})
    price = update_seconds(Update(rule, 10**9, cost), on, form)
    assert price.seconds >= (cost.read + cost.written) / on.memory_bandwidth
    assert price.launches == (cost.fused if form.master else cost.launches)


def test_compiled_neighbours_move_less_and_launch_less() -> None:
    made = program("llama:layers=2,hidden=512,heads=8,ffn=1024,vocab=1000", "dp2", 4)
    bodies = [body for stage in made.stages for slot in "FB" for body, _ in stage.passes(slot)]
    how = device("h100"), FORMATS["fp32"], trainer("pytorch-compiled")
    assert bodies
    for body in bodies:
        assert list(chains(body.actions, "eager")) == list(body.actions)
        apart = [one for one in body.actions if isinstance(one, Compute)]
        joined = [one for one in chains(body.actions, "compiled") if isinstance(one, Compute)]
        assert sum(one.cost.matrix for one in joined) == sum(one.cost.matrix for one in apart)
        assert all(one.cost.read >= 0 and one.cost.written >= 0 for one in joined)
        prices = [[kernel_seconds(one, *how) for one in some] for some in (joined, apart)]
        less, more = (sum(price.seconds for price in some) for some in prices)
        assert less <= more
        assert sum(price.launches for price in prices[0]) <= sum(one.cost.launches for one in apart)
    assert any(len(list(chains(body.actions, "compiled"))) < len(body.actions) for body in bodies)


@pytest.mark.parametrize("name", names("devices"))
def test_every_device_has_a_price(name: str) -> None:
    on = device(name)
    price = kernel_seconds(product("head"), on, FORMATS["fp32"], trainer("pytorch"))
    assert 0 < price.seconds < 60
