"""Surfaces and what they correct: a machine that is k times as slow as the formulas is predicted k times as slow."""

from __future__ import annotations

import math

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.cost.calibrated import calibrated, fits, kernel_points
from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.cost.kernels import kernel_seconds, update_seconds
from foretell.cost.samples import (
    BACKWARD,
    Calibration,
    CollectiveSample,
    FigureSample,
    Kernel,
    MeasuredMachine,
    StepSample,
    UpdateSample,
    calibration,
    form_of,
    sample,
)
from foretell.cost.wrapped_timed import AGAIN, SPLIT_BACKWARD, SPLIT_FORWARD, UNIT
from foretell.errors import BadInput
from foretell.hardware import this_machine
from foretell.hardware.catalog import cluster
from foretell.hardware.measured import Surface
from foretell.model.operator import Operator, OperatorPart
from foretell.model.operators.attention import Attention
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.normalization import Normalize
from foretell.model.optimizer import update_rule
from foretell.plan.figures import look_up
from foretell.plan.trainer import trainer
from foretell.program.action import Compute, Update
from foretell.records.record import record

PYTORCH = trainer("pytorch")
H200 = cluster("8xh200")
sizes = st.floats(1, 2**40)
logs = st.floats(-3, 3)
points = st.lists(st.tuples(st.floats(0, 40), st.floats(0, 40), logs), min_size=1, max_size=12).map(tuple)


@given(points, sizes, sizes)
def test_a_factor_lies_between_those_measured(
    found: tuple[tuple[float, float, float], ...], x: float, y: float
) -> None:
    factor = Surface(found).factor(x, y)
    least, most = min(log for *_, log in found), max(log for *_, log in found)
    assert math.exp(least) * (1 - 1e-9) <= factor <= math.exp(most) * (1 + 1e-9)


@given(points, st.lists(sizes, min_size=1, max_size=5), sizes)
def test_arrays_have_the_digits_of_single_sizes(
    found: tuple[tuple[float, float, float], ...], many: list[float], y: float
) -> None:
    surface = Surface(found)
    assert list(surface.factor(numpy.array(many), y)) == [surface.factor(x, y) for x in many]


@given(points, st.floats(0.1, 10), sizes, sizes)
def test_slower_is_slower_everywhere(
    found: tuple[tuple[float, float, float], ...], times: float, x: float, y: float
) -> None:
    surface = Surface(found)
    assert surface.slower(times).factor(x, y) == pytest.approx(times * surface.factor(x, y))


def test_far_from_others_a_point_is_itself() -> None:
    surface = Surface(((10.0, 10.0, 0.0), (40.0, 40.0, 1.0)))
    assert surface.factor(2.0**10, 2.0**10) == pytest.approx(1.0, abs=1e-3)
    assert surface.factor(2.0**40, 2.0**40) == pytest.approx(math.e, rel=1e-3)
    assert surface.residuals() == [-1.0, 1.0]


KERNELS: list[tuple[Operator, dict[str, int], str, tuple[str, ...]]] = [
    (Matmul(), {"batch": 1, "row": 4096, "in": 1024, "out": 4096}, "x w y", ("forward",)),
    (Matmul(), {"batch": 1, "row": 4096, "in": 1024, "out": 4096}, "x w y", ("weight_gradient",)),
    (Elementwise("relu"), {"item": 2**26}, "x y", ("forward",)),
    (Normalize("layer"), {"group": 8192, "member": 1024, "affine": 1024}, "x w b y", BACKWARD),
    (
        Convolution((3, 3), (1, 1), (1, 1), (1, 1)),
        {"sample": 64, "group": 1, "in": 64, "out": 64, "height": 56, "width": 56},
        "x w y",
        ("forward",),
    ),
]


def _kernel(at: int, precision: str = "fp32") -> Kernel:
    operator, loops, operands, parts = KERNELS[at]
    width = 4 if precision == "fp32" else 2
    return Kernel(
        operator=msgspec.to_builtins(operator),
        sizes=loops,
        widths=dict.fromkeys(operands.split(), width),
        parts=parts,
        precision=precision,
    )


def _calibration(*samples: object, kind: str = "cuda", device: str = "h200") -> Calibration:
    machine = MeasuredMachine(device=device, title=device, kind=kind, count=8, memory_bytes=1)
    return Calibration(machine=machine, samples=samples, complete=True, date="2026-11-15T12:00:00")  # type: ignore[arg-type]


def _said(about: Kernel) -> tuple[float, float]:
    """Seconds of the formula, and how much of them is starting."""
    prices = [kernel_seconds(one, H200.device, form_of(about.precision), PYTORCH) for one in about.actions()]
    return sum(float(price.seconds) for price in prices), sum(float(price.launch) for price in prices)


@pytest.mark.parametrize("at", range(len(KERNELS)))
@given(times=st.floats(1, 30))
def test_a_kernel_costs_what_was_measured(at: int, times: float) -> None:
    about = _kernel(at)
    seconds, launch = _said(about)
    found = _calibration(sample("any", about, [times * (seconds - launch) + launch]))
    device = calibrated(H200, PYTORCH, found).cluster.device
    prices = [kernel_seconds(one, device, form_of("fp32"), PYTORCH) for one in about.actions()]
    assert sum(float(price.seconds) for price in prices) == pytest.approx(times * (seconds - launch) + launch)
    assert {price.provenance for price in prices} == {"measured"}


@given(st.lists(st.integers(1, 2**14), min_size=1, max_size=4), st.floats(0.5, 20))
def test_many_sizes_at_once_cost_what_each_costs(rows: list[int], times: float) -> None:
    samples = [sample("any", _kernel(0), [times * _said(_kernel(0))[0]]), sample("any", _kernel(1), [1.0])]
    device = calibrated(H200, PYTORCH, _calibration(*samples)).cluster.device

    def price(count: object) -> object:
        loops = {"batch": 1, "row": count, "in": 512, "out": 512}
        cost = Matmul().forward(loops, {"x": 4, "w": 4, "y": 4})
        action = Compute("layers.0", "matmul", "forward", loops, cost)  # type: ignore[arg-type]
        return kernel_seconds(action, device, form_of("fp32"), PYTORCH).seconds

    assert list(price(numpy.array(rows, dtype=float))) == [price(float(one)) for one in rows]  # type: ignore[call-overload]


def test_what_was_not_timed_keeps_its_price() -> None:
    """A product says nothing of a loss; a function of elements stands in for what is bound by memory."""
    relu, norm = _kernel(2), _kernel(3)
    seconds, _ = _said(relu)
    only_relu = calibrated(H200, PYTORCH, _calibration(sample("any", relu, [2 * seconds]))).cluster.device
    only_product = calibrated(H200, PYTORCH, _calibration(sample("any", _kernel(0), [1.0]))).cluster.device
    action = next(iter(norm.actions()))
    plain = kernel_seconds(action, H200.device, form_of("fp32"), PYTORCH)
    assert kernel_seconds(action, only_product, form_of("fp32"), PYTORCH) == plain
    forward = msgspec.structs.replace(norm, parts=("forward",))
    action = next(iter(forward.actions()))
    assert kernel_seconds(action, only_relu, form_of("fp32"), PYTORCH).provenance == "measured"


def test_a_copy_is_corrected_as_what_has_as_many_elements() -> None:
    """It computes nothing, and yet is not near kernels that are too small to compute anything."""
    few, many = (
        Kernel(
            operator=msgspec.to_builtins(Elementwise("relu")),
            sizes={"item": count},
            widths={"x": 4, "y": 4},
            parts=("forward",),
            precision="fp32",
        )
        for count in (2**10, 2**28)
    )
    samples = [sample("any", few, [50 * _said(few)[0]]), sample("any", many, [_said(many)[0]])]
    device = calibrated(H200, PYTORCH, _calibration(*samples)).cluster.device
    copy = Compute(
        "layers.0", "elementwise", "forward", {"item": 2**28}, OperatorPart(read=2**30, written=2**30, launches=1)
    )
    plain, found = (kernel_seconds(copy, place, form_of("fp32"), PYTORCH) for place in (H200.device, device))
    assert float(found.seconds) == pytest.approx(float(plain.seconds), rel=0.02)


@pytest.mark.parametrize("name", [UNIT, AGAIN, SPLIT_FORWARD, SPLIT_BACKWARD])
def test_a_difference_of_two_times_may_be_zero(name: str) -> None:
    """What a calibration writes, it reads."""
    made = _calibration(sample("wrapped", FigureSample(name=name, unit="s"), [0.0, 1e-4, 2e-4]))
    assert calibration(record("calibration", msgspec.to_builtins(made), cluster="this-machine")).samples == made.samples


def test_an_update_costs_what_was_measured() -> None:
    form = form_of("fp32")
    cost = update_rule("adamw").cost(10**8, dict.fromkeys("wgs", 4))
    action = Update("adamw", 10**8, cost)
    plain = update_seconds(action, H200.device, form)
    about = UpdateSample(rule="adamw", parameters=10**8, tensors=10, precision="fp32", way="default")
    found = _calibration(sample("optimizer", about, [3 * (plain.seconds - plain.launch) + plain.launch]))
    device = calibrated(H200, PYTORCH, found).cluster.device
    assert update_seconds(action, device, form).stream == pytest.approx(3 * plain.stream)


def test_a_collective_costs_what_was_measured() -> None:
    plain = collective_seconds("all-reduce", 2**24, Group(8), H200).seconds
    about = CollectiveSample(kind="all-reduce", ranks=8, payload=2**24)
    place = calibrated(H200, PYTORCH, _calibration(sample("collectives", about, [2 * plain]))).cluster
    price = collective_seconds("all-reduce", 2**24, Group(8), place)
    assert price.seconds == pytest.approx(2 * plain)
    assert price.seconds == pytest.approx(price.latency + price.bandwidth + price.filling)
    assert price.provenance == "measured sweeps"
    other = collective_seconds("all-gather", 2**24, Group(8), place).seconds
    assert other == collective_seconds("all-gather", 2**24, Group(8), H200).seconds


def test_a_calibration_of_another_device_is_refused() -> None:
    with pytest.raises(BadInput, match="of h200"):
        calibrated(cluster("8xh100"), PYTORCH, _calibration())


def test_the_host_of_a_gpu_and_of_a_processor() -> None:
    """A GPU's host launches ahead; on a processor one thread does both, so that a launch is the device's."""
    steps = sample("launch", StepSample(model="mlp", batch=1, launches=100.0), [5e-3])
    of_gpu = calibrated(H200, PYTORCH, _calibration(steps))
    assert of_gpu.trainer.host.launch == pytest.approx(50e-6)
    assert of_gpu.cluster.device.launch_seconds == H200.device.launch_seconds
    assert of_gpu.trainer.source("host.launch").startswith("measured here on 2026-11-15")
    nanotron = trainer("nanotron")  # whose host is known by layer
    assert calibrated(H200, nanotron, _calibration(steps)).trainer.host == nanotron.host
    cores = cluster("this-machine")
    if cores.device.name == "cpu-core":
        of_cpu = calibrated(cores, PYTORCH, _calibration(steps, kind="cpu", device="cpu-core"))
        assert of_cpu.trainer.host.launch == 0
        assert of_cpu.cluster.device.launch_seconds == pytest.approx(50e-6)


def test_full_cores_are_slower() -> None:
    cores = cluster("this-machine")
    if cores.device.name != "cpu-core":
        pytest.skip("a GPU is here")
    crowded = sample("collectives", FigureSample(name="crowded product"), [1.8])
    found = _calibration(sample("matmul", _kernel(0), [1.0]), crowded, kind="cpu", device="cpu-core")
    action = next(iter(_kernel(0).actions()))

    def seconds(ranks: int) -> float:
        device = calibrated(cores, PYTORCH, found, ranks).cluster.device
        return float(kernel_seconds(action, device, form_of("fp32"), PYTORCH).seconds)

    assert seconds(8) == pytest.approx(1.8 * seconds(1), rel=1e-3)
    assert seconds(1) < seconds(4) < seconds(8)


def test_cores_that_were_tried_say_how_much_slower() -> None:
    cores = this_machine.processor(8, "a core", 2**30)
    tried = [sample("collectives", FigureSample(name="crowded product", ranks=n), [x]) for n, x in ((2, 1.2), (8, 1.8))]
    found = _calibration(sample("matmul", _kernel(0), [1.0]), *tried, kind="cpu", device="cpu-core")
    action = next(iter(_kernel(0).actions()))

    def slower(ranks: int) -> float:
        devices = [calibrated(cores, PYTORCH, found, n).cluster.device for n in (ranks, 1)]
        crowded, alone = (float(kernel_seconds(action, one, form_of("fp32"), PYTORCH).seconds) for one in devices)
        return crowded / alone

    assert slower(2) == pytest.approx(1.2, rel=1e-3)
    assert slower(5) == pytest.approx(1.5, rel=1e-3)  # half way between the two that were tried
    assert slower(8) == pytest.approx(1.8, rel=1e-3)


def test_weights_in_shares_are_waited_for_on_a_processor() -> None:
    cores = this_machine.processor(8, "a core", 2**30)
    tried = sample("collectives", FigureSample(name="overlap", ranks=8), [0.75])
    runs = calibrated(cores, PYTORCH, _calibration(tried, kind="cpu", device="cpu-core"), 8).trainer
    shares = {word: look_up(runs.gradients.overlap, word) for word in ("replicated", "zero1", "zero2", "zero3")}
    assert shares == {"replicated": 0.75, "zero1": 0.75, "zero2": 0.0, "zero3": 0.0}


def test_attention_of_a_core_has_short_rows_shallow_heads_and_no_holes() -> None:
    core = this_machine.processor(8, "a core", 2**30).device

    def seconds(key: int, head: int, causal: bool) -> float:
        sizes = {"sample": 2, "kv_head": 4, "share": 1, "query": key, "key": key, "qk": head, "value": head}
        operator = Attention("flash", causal=causal)
        cost = operator.part("forward", sizes, dict.fromkeys("qkvy", 4))
        action = Compute("x", "attention", "forward", sizes, cost, density=float(operator.density(sizes)))
        return float(kernel_seconds(action, core, form_of("fp32"), PYTORCH).seconds) - core.launch_seconds

    assert seconds(64, 32, True) == pytest.approx(seconds(64, 32, False), rel=0.05)
    assert seconds(1024, 32, True) == pytest.approx(0.75 * seconds(1024, 32, False), rel=0.05)
    assert seconds(256, 8, False) > 0.3 * seconds(256, 64, False)  # an eighth of the work
    assert seconds(1024, 64, False) < 0.75 * 16**2 * seconds(64, 64, False)


def test_fits_say_how_well_samples_tell_each_other() -> None:
    samples = [sample("matmul", _kernel(0), [1.0]), sample("matmul", _kernel(0, "bf16"), [1.0])]
    found = fits(H200.device, H200, _calibration(*samples))
    assert found["matmul forward fp32"].samples == found["matmul forward bf16"].samples == 1
    assert set(kernel_points(H200.device, _calibration(*samples))) >= set(found)


def test_the_search_prices_a_calibrated_cluster_as_predictions_do() -> None:
    samples = [sample("any", _kernel(at), [(at + 2) * _said(_kernel(at))[0]]) for at in range(len(KERNELS))]
    samples.append(sample("any", CollectiveSample(kind="all-reduce", ranks=8, payload=2**24), [0.01]))
    place = calibrated(H200, PYTORCH, _calibration(*samples)).cluster
    model = "llama:layers=4,hidden=1024,heads=8,kv_heads=8,ffn=2816,vocab=32000,seq=512"
    best = foretell.plan(model, place, 64, precision="fp32", only=("dp", "tp")).best
    assert best is not None
    assert foretell.predict(model, place, best.plan, 64, calibration="none").step_seconds == best.step_seconds
    assert foretell.predict(model, H200, best.plan, 64, calibration="none").step_seconds < best.step_seconds


def test_launches_are_no_evidence_for_kernels() -> None:
    """What a calibration did not time is told as it is known without it."""
    model, plan = "llama:layers=2,hidden=256,heads=4,kv_heads=4,ffn=512,vocab=512,seq=128", "dp1 +bf16"
    steps = sample("launches", StepSample(model="mlp", batch=1, launches=100), [2e-3])
    place = calibrated(H200, PYTORCH, _calibration(steps)).cluster
    found = foretell.predict(model, place, plan, 8, calibration="none")
    assert "measured here" not in found.provenance["compute"]
    product = sample("matmul", _kernel(0, "bf16"), [1e-3])
    timed = foretell.predict(
        model, calibrated(H200, PYTORCH, _calibration(product)).cluster, plan, 8, calibration="none"
    )
    assert "measured here" in timed.provenance["compute"]


def test_a_processor_whose_launches_were_not_timed_keeps_its_source() -> None:
    crowded = sample("collectives", FigureSample(name="crowded product"), [1.8])
    cores = cluster("this-machine")
    if cores.device.name != "cpu-core":
        pytest.skip("a GPU is here")
    found = calibrated(cores, PYTORCH, _calibration(crowded, kind="cpu", device="cpu-core")).trainer
    assert dict(found.sources)["host.launch"] == dict(PYTORCH.sources)["host.launch"]
    assert found.host.launch == 0  # one thread calls and computes
