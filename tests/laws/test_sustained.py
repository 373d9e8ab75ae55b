"""Kernels under the limit of power: what was timed both ways slows all kernels like it, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy
import pytest

from foretell.calibration.case import Scope
from foretell.calibration.probes import probes, sustained
from foretell.cost.calibrated import calibrated, kernel_points
from foretell.cost.kernels import kernel_seconds
from foretell.cost.power_limit import ATTENTION, MOVED, PRODUCT, alike, among
from foretell.cost.samples import Calibration, Kernel, MeasuredMachine, Sample, calibration, form_of, sample
from foretell.cost.sustained import under_power
from foretell.hardware.catalog import cluster
from foretell.model.operators.matmul import Matmul
from foretell.plan.trainer import trainer
from foretell.program.action import Compute
from foretell.records.record import record

PYTORCH, H200 = trainer("pytorch"), cluster("8xh200")
ON_A_GPU = Scope("cuda", quick=False, count=1)
MIXED = [
    (precision, case.about)
    for precision in ON_A_GPU.precisions
    for case in sustained.mixed(ON_A_GPU, precision)
    if isinstance(case.about, Kernel)
]


def alike_of(about: Kernel) -> str:
    return alike(about.operator["operator"])


def _formula(about: Kernel) -> tuple[float, float]:
    """Seconds of the formula, and how much of them is starting."""
    prices = [kernel_seconds(one, H200.device, form_of(about.precision), PYTORCH) for one in about.actions()]
    return sum(float(price.seconds) for price in prices), sum(float(price.launch) for price in prices)


def _samples(times: float, slower: dict[str, float]) -> list[Sample]:
    """Every kernel of a mix as the formula says, so many times as long; among others that much longer yet."""
    found: dict[bytes, Sample] = {}
    for _, about in MIXED:
        seconds, launch = _formula(about)
        alone = times * (seconds - launch) + launch
        among = msgspec.structs.replace(about, sustained=True)
        for one in (sample("any", about, [alone]), sample("sustained", among, [slower[alike_of(about)] * alone])):
            found[one.key] = one
    return list(found.values())


def _calibration(samples: list[Sample]) -> Calibration:
    machine = MeasuredMachine(device="h200", title="h200", kind="cuda", count=8, memory_bytes=1)
    return Calibration(machine=machine, samples=tuple(samples), complete=True)


def _layer(precision: str) -> list[Compute]:
    """What a mix computes."""
    return [action for word, about in MIXED if word == precision for action in about.actions()]


def _priced(found: Calibration, layer: list[Compute], precision: str) -> list[float]:
    """What kernels of a layer take besides starting them, over the formula."""
    form, device = form_of(precision), calibrated(H200, PYTORCH, found).cluster.device
    price = among(layer, lambda one: kernel_seconds(one, device, form, PYTORCH), device, form)
    plain = [kernel_seconds(one, H200.device, form, PYTORCH) for one in layer]
    both = zip(map(price, layer), plain, strict=True)
    return [float(one.seconds - one.launch) / float(other.seconds - other.launch) for one, other in both]


@pytest.mark.parametrize(
    "times, product, attention, moved", [(1.0, 1.2, 1.3, 1.1), (0.9, 1.05, 1.0, 1.0), (1.0, 1.0, 2.0, 1.4)]
)
def test_a_layer_that_draws_as_much_has_kernels_as_they_are_among_others(
    times: float, product: float, attention: float, moved: float
) -> None:
    """Nothing is faster than the peak that a data sheet says: so not below 0.8 of the formula."""
    slower = {PRODUCT: product, ATTENTION: attention, MOVED: moved}
    found = _calibration(_samples(times, slower))
    known = under_power(found, H200.device)
    assert known is not None and {kind.split()[0] for kind in known.ratios} == set(slower)
    for kind, ratio in known.ratios.items():
        assert ratio.factor(2**30, 2**20) == pytest.approx(slower[kind.split()[0]])
    assert known.watts["bf16"] > H200.device.power_watts  # what an H200 cannot keep
    layer = _layer("bf16")
    for one, ratio in zip(layer, _priced(found, layer, "bf16"), strict=True):
        assert ratio == pytest.approx(times * slower[alike(one.operator)], rel=0.06)


@pytest.mark.parametrize("product, moved, copies", [(1.3, 1.1, 0), (1.3, 1.0, 2), (2.0, 1.2, 20)])
def test_the_more_a_layer_would_draw_the_longer_its_kernels_take(product: float, moved: float, copies: int) -> None:
    """Copies alone keep within the limit, and are as fast as alone; products among them slow all that draw alike."""
    found = _calibration(_samples(1.0, {PRODUCT: product, ATTENTION: 1.0, MOVED: moved}))
    layer = _layer("bf16")
    products = [one for one in layer if one.operator == "matmul"]
    copied = [one for one in layer if one.operator == "elementwise" and one.cost.vector == 0]
    assert products and copied
    assert _priced(found, copied, "bf16") == pytest.approx([1.0] * len(copied))
    few, many = (_priced(found, [*products, *copied * count], "bf16")[0] for count in (copies, copies + 1))
    assert 1.0 - 1e-9 <= many <= few + 1e-9 and few <= product + 1e-9


def test_nothing_gets_faster_among_others() -> None:
    found = _calibration(_samples(1.0, {PRODUCT: 0.7, ATTENTION: 0.9, MOVED: 1.0}))
    known = under_power(found, H200.device)
    assert known is not None and {log for ratio in known.ratios.values() for *_, log in ratio.points} == {0.0}


def test_many_sizes_at_once_are_slowed_as_each_is() -> None:
    """Search prices layers of all its batches at once."""
    device = calibrated(H200, PYTORCH, _calibration(_samples(1.0, {PRODUCT: 1.3, ATTENTION: 1.2, MOVED: 1.1})))
    form = form_of("bf16")

    def seconds(rows: Any) -> Any:
        sizes = {"batch": 1, "row": rows, "in": 4096, "out": 4096}
        layer = [Compute("layers.0", "matmul", "forward", sizes, Matmul().forward(sizes, dict.fromkeys("xwy", 2)))]
        place = device.cluster.device
        price = among(layer, lambda one: kernel_seconds(one, place, form, PYTORCH), place, form)
        return price(layer[0]).seconds

    rows = [256, 4096, 65536]
    assert list(seconds(numpy.array(rows, dtype=float))) == [seconds(float(one)) for one in rows]


@pytest.mark.parametrize("times", [0.5, 0.9, 1.0, 1.4])
def test_a_record_of_before_does_not_say_how_fast_products_are(times: float) -> None:
    """Its kernels ran alone: products are not taken to be faster than the formula has them; what is slower stays so."""
    before = [one for one in _samples(times, dict.fromkeys((PRODUCT, ATTENTION, MOVED), 1.0)) if one.probe == "any"]
    layer = _layer("bf16")
    for one, ratio in zip(layer, _priced(_calibration(before), layer, "bf16"), strict=True):
        said = times if alike(one.operator) == MOVED else max(1.0, times)
        assert ratio == pytest.approx(said, rel=1e-6)


def test_a_record_is_read_as_it_was_written() -> None:
    found = _calibration(_samples(1.1, {PRODUCT: 1.2, ATTENTION: 1.1, MOVED: 1.0}))
    again = calibration(record("calibration", msgspec.to_builtins(found), cluster="this-machine"))
    assert again.samples == found.samples
    old = msgspec.to_builtins(found.samples[0])
    old["about"].pop("sustained")  # as it was written before there was such a thing
    assert msgspec.convert(old, Sample).about == found.samples[0].about


def test_points_of_kernels_are_those_timed_alone() -> None:
    alone = [one for one in _samples(1.3, dict.fromkeys((PRODUCT, ATTENTION, MOVED), 2.0)) if one.probe == "any"]
    both = _samples(1.3, dict.fromkeys((PRODUCT, ATTENTION, MOVED), 2.0))
    assert kernel_points(H200.device, _calibration(both)) == kernel_points(H200.device, _calibration(alone))


def test_every_kernel_of_a_mix_is_timed_alone_too() -> None:
    """By another probe, in the same calibration; and every mix has what draws alike: products, attention, copies."""
    others = {
        msgspec.json.encode(case.about)
        for name, probe in probes().items()
        if name in ("matmul", "attention", "memory_bound", "normalisation")
        for case in probe.cases(ON_A_GPU)
    }
    kernels = [case.about for case in sustained.cases(ON_A_GPU) if isinstance(case.about, Kernel)]
    assert len(kernels) == len({msgspec.json.encode(about) for about in kernels}) > 40
    for about in kernels:
        assert about.sustained and msgspec.json.encode(msgspec.structs.replace(about, sustained=False)) in others
    for precision in ON_A_GPU.precisions:
        mix = [about for word, about in MIXED if word == precision]
        assert {alike_of(about) for about in mix} == {PRODUCT, ATTENTION, MOVED}
        seconds = {kind: sum(_formula(one)[0] for one in mix if alike_of(one) == kind) for kind in (PRODUCT, MOVED)}
        assert seconds[PRODUCT] > seconds[MOVED]  # as in a step


def test_no_mix_where_power_is_no_matter() -> None:
    assert not list(sustained.cases(ON_A_GPU._replace(quick=True)))
    assert not list(sustained.cases(ON_A_GPU._replace(device="cpu")))
