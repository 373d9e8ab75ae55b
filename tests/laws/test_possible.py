"""No answer is above what the device can do, below zero, or of more bytes than there are: whatever it rests on."""

from __future__ import annotations

import csv
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import foretell as package
from foretell.cost.flops import step_flops
from foretell.cost.kernels import arithmetic, kernel_seconds, unit_rate
from foretell.cost.samples import (
    About,
    Calibration,
    CollectiveSample,
    FigureSample,
    Kernel,
    MeasuredMachine,
    StepSample,
    UpdateSample,
    form_of,
    sample,
)
from foretell.errors import BadInput
from foretell.hardware.members import device
from foretell.model import zoo
from foretell.model.operators.attention import Attention
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.matmul import Matmul
from foretell.model.source import load
from foretell.oracle.predict import Prediction
from foretell.oracle.rates import step_rates
from foretell.plan.policies.precision import FORMATS
from foretell.plan.policies.recompute import Recompute
from foretell.plan.trainer import trainer
from foretell.program.action import Compute
from foretell.records import store
from foretell.records.record import record
from law_examples import examples, reached

DRAWN = Path(__file__).parent.parent / "replay" / "plans.tsv"
TINY = "llama:layers=2,hidden=256,heads=4,kv_heads=4,ffn=512,vocab=1024,seq=2048"
ROUNDING = 1 + 1e-9


def assert_possible(found: Prediction) -> None:
    rates = step_rates(found)
    assert 0 < rates.mfu <= rates.hfu * ROUNDING and rates.hfu <= ROUNDING, (rates.mfu, rates.hfu)
    assert 0 < found.step_seconds < math.inf and min(found.breakdown.values()) >= 0
    assert sum(found.breakdown.values()) == pytest.approx(found.step_seconds)
    assert 0 < found.interval[0] <= found.step_seconds <= found.interval[1] < math.inf
    assert found.memory_bytes > 0 and min(found.memory.by_kind.values()) >= 0
    assert found.usable <= found.capacity
    assert found.fits == (found.memory_bytes <= found.usable)
    assert all(math.isfinite(one) for one in _numbers(msgspec.to_builtins(found)))


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [one for own in value.values() for one in _numbers(own)]
    if isinstance(value, list | tuple):
        return [one for own in value for one in _numbers(own)]
    return [value] if isinstance(value, float) else []


@cache
def _drawn() -> tuple[dict[str, str], ...]:
    """Legal plans of all models, clusters and trainers."""
    with DRAWN.open(newline="") as file:
        return tuple(line for line in csv.DictReader(file, delimiter="\t") if "predict" in line["ask"])


@examples(40)
@given(st.data())
def test_no_drawn_plan_is_above_the_peak(data: st.DataObject) -> None:
    one = data.draw(st.sampled_from(_drawn()))
    about = {"trainer": one["trainer"], **({"optimizer": one["optimizer"]} if one["optimizer"] else {})}
    assert_possible(package.predict(one["model"], one["cluster"], one["plan"], int(one["batch"]), **about))


LONG = ("llama3-8b", "mistral-7b")
MODELS = (*LONG, "bert-large", "unet", "resnet50", "vgg16", "vit_b_16", "lstm-medium", "cosmoflow128")
DEVICES = ("a100-80", "a30", "h100", "h200", "b200", "v100-16", "p100", "mi300x", "rtx4090", "cpu")


@pytest.mark.reaches(answered=30)
@examples(60)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(DEVICES),
    st.sampled_from(["", "+tf32", "+bf16", "+fp16", "+fp8"]),
    st.sampled_from(["", "+recompute:full", "+recompute:attention"]),
    st.integers(0, 9),
    st.sampled_from([0, 2**14, 2**19]),
)
def test_no_large_work_on_one_device_is(
    model: str, where: str, precision: str, policy: str, batch: int, seq: int
) -> None:
    """Where kernels are best filled: many samples, long sequences, any precision and none."""
    try:
        about = {"seq": seq} if seq and model in LONG else {}
        found = package.predict(model, f"1x{where}", f"dp1 {precision} {policy}".strip(), 2**batch, **about)
    except BadInput:
        reached("refused")  # a precision that the device has no units for
        return
    assert_possible(found)
    reached("answered")


def test_winograd_is_counted_by_the_products_that_it_makes() -> None:
    """This question showed 101.8 % of the peak: products that no kernel makes were counted."""
    found = package.predict("unet", "8x8xa100-80,roce-400", "channel1", 512)
    assert_possible(found)
    assert 0.4 < found.utilisation < 0.6
    tensor = package.predict("unet", "8x8xa100-80,roce-400", "channel1 +bf16", 512)
    assert found.model_flops < 0.6 * tensor.model_flops, "matrix units have no such kernels"


# MFU as runs report it


def test_model_flops_by_hand() -> None:
    """Six for each weight of a product and token; of causal attention 6 L h s: backward is twice the forward pass."""
    layers, hidden, ffn, vocab, seq = 2, 256, 512, 1024, 2048
    found = package.predict(TINY, "1xh100", "dp1 +bf16", 4)
    weights = layers * (4 * hidden**2 + 3 * hidden * ffn) + hidden * vocab
    tokens = 4 * seq
    assert found.model_flops == pytest.approx(tokens * (6 * weights + 6 * layers * hidden * seq), rel=1e-3)
    again = tokens * layers * hidden * seq  # the scores once more, in the backward pass of flash
    assert found.hardware_flops - found.model_flops == pytest.approx(again, rel=1e-3)


@given(st.sampled_from(sorted(zoo.names())), st.sampled_from(["h100", "a100-80"]), st.sampled_from(["fp32", "bf16"]))
def test_work_that_is_counted_is_no_more_than_what_pytorch_counts(model: str, where: str, precision: str) -> None:
    from foretell.model.totals import totals

    graph = load(model, 2, None)
    needs = totals(graph)
    counted = step_flops(graph, Recompute().rule, device(where), FORMATS[precision], trainer("pytorch"))
    assert 0 < counted.model <= counted.hardware * ROUNDING
    assert counted.hardware <= float(needs.forward.matrix + needs.backward.matrix) * ROUNDING


# evidence that cannot be


KERNELS: tuple[tuple[Any, dict[str, int], str, tuple[str, ...]], ...] = (
    (Matmul(), {"batch": 1, "row": 2048, "in": 2048, "out": 2048}, "x w y", ("forward",)),
    (Matmul(), {"batch": 1, "row": 64, "in": 64, "out": 64}, "x w y", ("input_gradient", "weight_gradient")),
    (
        Attention(causal=True),
        {"sample": 2, "kv_head": 4, "share": 1, "query": 2048, "key": 2048, "qk": 64, "value": 64},
        "q k v y",
        ("forward",),
    ),
    (
        Convolution((3, 3), (1, 1), (1, 1), (1, 1)),
        {"sample": 8, "group": 1, "out": 64, "in": 64, "height": 56, "width": 56},
        "x w y",
        ("forward",),
    ),
)


def _kernel(at: int, precision: str) -> Kernel:
    operator, sizes, operands, parts = KERNELS[at]
    width = 4 if precision == "fp32" else 2
    return Kernel(
        operator=msgspec.to_builtins(operator),
        sizes=sizes,
        widths=dict.fromkeys(operands.split(), width),
        parts=parts,
        precision=precision,
    )


ABSURD = st.floats(-12, 12).map(lambda power: 10.0**power)
ABOUT: st.SearchStrategy[About] = st.one_of(
    st.builds(_kernel, st.integers(0, 3), st.sampled_from(["fp32", "bf16"])),
    st.builds(lambda count: UpdateSample(rule="adamw", parameters=count, tensors=2, precision="fp32", way="foreach"),
              st.integers(1, 2**30)),
    st.just(StepSample(model="mlp", batch=1, launches=100.0)),
    st.builds(lambda size: CollectiveSample(kind="all-reduce", ranks=4, payload=size), st.integers(1, 2**30)),
    st.builds(lambda name: FigureSample(name=name), st.sampled_from(["context", "communicator", "overlap"])),
)  # fmt: skip


@examples(40)
@given(
    st.lists(st.tuples(ABOUT, ABSURD), min_size=1, max_size=8),
    st.sampled_from([(TINY, "h200", "cuda", 4), ("resnet18", "h200", "cuda", 64), (TINY, "cpu-core", "cpu", 1)]),
    st.sampled_from(["dp4", "dp4 +bf16", "tp4 +bf16"]),
)
def test_no_calibration_makes_a_device_faster_than_its_peak(
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[tuple[About, float]],
    asked: tuple[str, str, str, int],
    plan: str,
) -> None:
    model, name, kind, batch = asked
    if name == "cpu-core" or model == "resnet18":
        plan = "dp4"
    machine = MeasuredMachine(device=name, title=name, kind=kind, count=4, memory_bytes=2**36)
    taken = tuple(sample("any", about, [value]) for about, value in samples)
    content = Calibration(machine=machine, samples=taken, complete=True, date="2026-01-01T12:00:00")
    file = store.write(tmp_path_factory.mktemp("absurd"), record("calibration", msgspec.to_builtins(content)))
    where = "4xcpu-core" if name == "cpu-core" else f"4x{name}"
    assume(kind != "cpu" or all(getattr(about, "precision", "fp32") == "fp32" for about, _ in samples))
    assert_possible(package.predict(model, where, plan, 4 * batch, calibration=file))


@given(ABSURD, st.integers(0, 3), st.sampled_from(["fp32", "bf16"]))
def test_no_kernel_is_faster_than_the_units_it_runs_on(value: float, at: int, precision: str) -> None:
    from foretell.cost.calibrated import calibrated
    from foretell.hardware.catalog import cluster

    place, runs, form = cluster("h200"), trainer("pytorch"), form_of(precision)
    machine = MeasuredMachine(device="h200", title="", kind="cuda", count=1, memory_bytes=1)
    timed = Calibration(machine=machine, samples=(sample("any", _kernel(at, precision), [value]),), complete=True)
    for one in (place.device, calibrated(place, runs, timed).cluster.device):
        for action in _kernel(at, precision).actions():
            assert isinstance(action, Compute)
            least = float(arithmetic(action, one, form)) / unit_rate(action, one, form)
            assert float(kernel_seconds(action, one, form, runs).seconds) >= least / ROUNDING


@pytest.mark.reaches(refused=5, answered=5)
@examples(40)
@given(
    st.floats(-9, 3).map(lambda power: 10.0**power),
    st.sampled_from(["dp4 +bf16", "tp4 +bf16", "dp4"]),
    st.sampled_from(["", "dp2 tp2 +bf16", "dp4 +bf16 +recompute:full"]),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 1e9, 1e30]),
)
def test_no_anchor_does_either(
    tmp_path_factory: pytest.TempPathFactory, seconds: float, plan: str, other: str, parts: bool, memory: float
) -> None:
    """Refused, or a possible answer: also where another plan than the measured one is asked about."""
    said: dict[str, Any] = {"step_seconds": seconds, "memory_bytes": memory}
    said |= {"plan": other} if other else {}
    said |= {"breakdown": {"forward": 0.2 * seconds, "backward": 0.5 * seconds}} if parts else {}
    file = tmp_path_factory.mktemp("anchor") / "step.json"
    file.write_text(json.dumps(said))
    try:
        found = package.predict(TINY, "4xh200", plan, 64, anchor=[file])
    except BadInput as refused:
        assert "peak" in refused.what or "has" in refused.what
        reached("refused")
        return
    assert_possible(found)
    reached("answered")
    if not other:
        assert found.step_seconds == pytest.approx(seconds), "the run that was measured is what was measured"


@pytest.mark.parametrize("seconds", ["-0.01", "0", "-1e-300", "1e-9"])
def test_an_impossible_anchor_is_refused_with_the_numbers(tmp_path: Path, seconds: str) -> None:
    file = tmp_path / "step.json"
    file.write_text(f'{{"step_seconds": {seconds}}}')
    with pytest.raises(BadInput) as refused:
        package.predict(TINY, "4xh200", "dp4 +bf16", 64, anchor=[file])
    assert seconds.removesuffix("-300")[:5] in str(refused.value) or "1e-09" in str(refused.value)
    if seconds == "1e-9":
        assert "FLOP" in refused.value.what and "peak" in refused.value.what and "times" in refused.value.what


def test_a_measurement_of_another_plan_does_not_lift_this_one_above_the_peak(tmp_path: Path) -> None:
    """A step that is all host can be measured much faster than it is predicted; one that is all products cannot."""
    small, large = 4, 4096
    slow = package.predict(TINY, "4xh200", "dp4 +bf16", small)
    file = tmp_path / "step.json"
    measured = 1.2 * slow.model_flops / (4 * slow.peak_flops)
    assert measured < slow.step_seconds / 3
    file.write_text(json.dumps({"batch": small, "step_seconds": measured}))
    found = package.predict(TINY, "4xh200", "dp4 +bf16", large, anchor=[file])
    assert_possible(found)
    assert any("it is taken at the peak" in note for note in found.notes)
    assert step_rates(found).hfu == pytest.approx(1.0)


def test_a_processor_s_peak_is_at_least_what_it_did(tmp_path: Path) -> None:
    """Figures of one processor stand in for those of all: a newer core may be faster, not a thousand times."""
    plain = package.predict(TINY, "1xcpu-core", "dp1", 1)
    least = plain.model_flops / plain.peak_flops
    file = tmp_path / "step.json"
    file.write_text(json.dumps({"step_seconds": least / 2}))
    assert_possible(package.predict(TINY, "1xcpu-core", "dp1", 1, anchor=[file]))
    file.write_text(json.dumps({"step_seconds": least / 1000}))
    with pytest.raises(BadInput, match="peak"):
        package.predict(TINY, "1xcpu-core", "dp1", 1, anchor=[file])
