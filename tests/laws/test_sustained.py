"""Kernels under the limit of power: what was timed both ways slows all kernels like it, and nothing else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.calibration.case import Scope
from foretell.calibration.probes import probes, sustained
from foretell.cost.calibrated import calibrated, kernel_points
from foretell.cost.kernels import kernel_seconds
from foretell.cost.samples import Calibration, Kernel, MeasuredMachine, Sample, calibration, form_of, sample
from foretell.cost.sustained import ATTENTION, MOVED, PRODUCT, UnderPower
from foretell.hardware.catalog import cluster
from foretell.model.autocast import PRODUCTS
from foretell.plan.trainer import trainer
from foretell.records.record import record

PYTORCH, H200 = trainer("pytorch"), cluster("8xh200")
ON_A_GPU = Scope("cuda", quick=False, count=1)
MIXED = [(precision, case.about) for precision in ON_A_GPU.precisions for case in sustained.mixed(ON_A_GPU, precision)]
slowed = st.floats(1, 3)


def _alike(about: Kernel) -> str:
    word = about.operator["operator"]
    return word if word == ATTENTION else PRODUCT if word in PRODUCTS else MOVED


def _formula(about: Kernel) -> tuple[float, float]:
    """Seconds of the formula, and how much of them is starting."""
    prices = [kernel_seconds(one, H200.device, form_of(about.precision), PYTORCH) for one in about.actions()]
    return sum(float(price.seconds) for price in prices), sum(float(price.launch) for price in prices)


def _samples(times: float, slower: dict[str, float]) -> list[Sample]:
    """Every kernel of a mix as the formula says, so many times as long; among others that much longer yet."""
    found: dict[bytes, Sample] = {}
    for _, about in MIXED:
        assert isinstance(about, Kernel)
        seconds, launch = _formula(about)
        alone = times * (seconds - launch) + launch
        among = msgspec.structs.replace(about, sustained=True)
        for one in (sample("any", about, [alone]), sample("sustained", among, [slower[_alike(about)] * alone])):
            found[one.key] = one
    return list(found.values())


def _calibration(samples: list[Sample]) -> Calibration:
    machine = MeasuredMachine(device="h200", title="h200", kind="cuda", count=8, memory_bytes=1)
    return Calibration(machine=machine, samples=tuple(samples), complete=True)


def _priced(found: Calibration, about: Kernel) -> float:
    """What is predicted of a kernel besides starting it, over the formula."""
    device = calibrated(H200, PYTORCH, found).cluster.device
    prices = [kernel_seconds(one, device, form_of(about.precision), PYTORCH) for one in about.actions()]
    plain = [kernel_seconds(one, H200.device, form_of(about.precision), PYTORCH) for one in about.actions()]
    return sum(float(p.seconds - p.launch) for p in prices) / sum(float(p.seconds - p.launch) for p in plain)


@given(st.floats(0.8, 3), slowed, slowed, slowed)
def test_a_step_has_kernels_as_they_are_among_others(
    times: float, product: float, attention: float, moved: float
) -> None:
    """Nothing is faster than the peak that a data sheet says: so not below 0.8 of the formula."""
    slower = {PRODUCT: product, ATTENTION: attention, MOVED: moved}
    found = _calibration(_samples(times, slower))
    ratios = UnderPower.of(found).ratios
    assert {kind for kind, _ in ratios} == set(slower)
    for (kind, _), ratio in ratios.items():
        assert ratio.factor(2**30, 2**20) == pytest.approx(slower[kind])
    for _, about in MIXED[:: len(MIXED) // 7]:
        assert isinstance(about, Kernel)
        assert _priced(found, about) == pytest.approx(times * slower[_alike(about)], rel=1e-6)


def test_nothing_gets_faster_among_others() -> None:
    found = _calibration(_samples(1.0, {PRODUCT: 0.7, ATTENTION: 0.9, MOVED: 1.0}))
    assert {log for ratio in UnderPower.of(found).ratios.values() for *_, log in ratio.points} == {0.0}


@given(st.floats(0.3, 3))
def test_a_record_of_before_does_not_say_how_fast_products_are(times: float) -> None:
    """Its kernels ran alone: products are not taken to be faster than the formula has them; what is slower stays so."""
    before = [one for one in _samples(times, dict.fromkeys((PRODUCT, ATTENTION, MOVED), 1.0)) if one.probe == "any"]
    for _, about in MIXED[:: len(MIXED) // 7]:
        assert isinstance(about, Kernel)
        said = times if _alike(about) == MOVED else max(1.0, times)
        assert _priced(_calibration(before), about) == pytest.approx(said, rel=1e-6)


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
        mix = [about for word, about in MIXED if word == precision and isinstance(about, Kernel)]
        assert {_alike(about) for about in mix} == {PRODUCT, ATTENTION, MOVED}
        seconds = {kind: sum(_formula(one)[0] for one in mix if _alike(one) == kind) for kind in (PRODUCT, MOVED)}
        assert seconds[PRODUCT] > seconds[MOVED]  # as in a step


def test_no_mix_where_power_is_no_matter() -> None:
    assert not list(sustained.cases(ON_A_GPU._replace(quick=True)))
    assert not list(sustained.cases(ON_A_GPU._replace(device="cpu")))
