"""Every verb that asks about plans uses a calibration as `predict` does, digit for digit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import foretell
from foretell.cost.samples import (
    Calibration,
    CollectiveSample,
    FigureSample,
    Kernel,
    MeasuredMachine,
    StepSample,
    sample,
)
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.model.operators.matmul import Matmul
from foretell.oracle import planning
from foretell.oracle.predict import Prediction
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.resolve import place_of, unmeasured
from foretell.oracle.upgrades import hardware
from foretell.records import store
from foretell.records.record import record
from questions import asked

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=512,seq=64"
ONLY = ("dp", "tp", "pp")


def _file(folder: Path, device: str, kind: str = "cuda", *, name: str = "") -> Path:
    """A machine on which everything takes longer than formulas say, by factors of its own."""
    product = Kernel(
        operator=msgspec.to_builtins(Matmul()),
        sizes={"batch": 1, "row": 512, "in": 512, "out": 512},
        widths={"x": 2, "w": 2, "y": 2},
        parts=("forward",),
        precision="bf16",
    )
    samples = (
        sample("matmul", product, [5e-5]),
        sample("launches", StepSample(model="mlp", batch=1, launches=100.0), [2e-3]),
        sample("collectives", CollectiveSample(kind="all-reduce", ranks=4, payload=2**20), [1e-3]),
        sample("memory", FigureSample(name="context"), [1.5e9]),
        sample("crowding", FigureSample(name="crowded product"), [1.8]),
    )
    machine = MeasuredMachine(device=device, title=device, kind=kind, count=4, memory_bytes=1)
    content = Calibration(machine=machine, samples=samples, complete=True, date="2026-11-15T12:00:00")
    made = record("calibration", msgspec.to_builtins(content))
    target = folder / (name or f"calibration-{device}.json")
    target.write_bytes(store.write(folder / "made", made).read_bytes())
    return target


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _file(tmp_path_factory.mktemp("calibrated"), "h200")


def _said(plan: str, where: str, batch: int, file: Path, model: str = TINY) -> Prediction:
    """What predict says, with the model as it was typed."""
    return msgspec.structs.replace(foretell.predict(model, where, plan, batch, calibration=file), model=model)


def _same(found: Candidate, step: Prediction) -> bool:
    return (found.step_seconds, found.memory_bytes) == (step.step_seconds, step.memory_bytes)


@pytest.mark.parametrize("trainer", ["pytorch", "megatron-core"])
def test_every_plan_of_a_search_costs_what_predict_says(file: Path, trainer: str) -> None:
    (question,) = asked(TINY, "4xh200", 8, trainer=trainer, only=(*ONLY, "recompute"), calibration=file)
    plain = unmeasured(question)
    plans, before = planning.answered(question).found.plans, planning.answered(plain).found.plans
    assert len(plans) == len(before) > 50
    for at in range(0, len(plans), 7):
        one = plans[at]
        step = foretell.predict(TINY, "4xh200", one.plan, 8, trainer=trainer, calibration=file)
        assert _same(one, step), one.plan
    assert (plans.seconds != before.seconds).mean() > 0.9


def test_all_verbs_say_the_same(file: Path) -> None:
    found = foretell.plan(TINY, "4xh200", 8, only=ONLY, calibration=file)
    best = found.fastest
    assert best is not None
    step = _said(best.plan, "4xh200", 8, file)
    assert _same(best, step)
    assert foretell.whatif(TINY, "4xh200", "best", 8, only=ONLY, calibration=file).prediction == step
    assert foretell.diff(TINY, "4xh200", best.plan, "tp4 +bf16", 8, calibration=file).first == step
    why = foretell.why(TINY, "4xh200", "tp4 +bf16", 8, only=ONLY, calibration=file)
    assert why.best == best
    assert why.prediction == _said("tp4 +bf16", "4xh200", 8, file)
    (row,) = foretell.sweep(TINY, "4xh200", 8, only=ONLY, calibration=file, jobs=1).rows
    assert found.best is not None
    low = _said(found.best.plan, "4xh200", 8, file).interval[0]
    assert (row.plan, row.step_seconds, row.low_seconds) == (found.best.plan, found.best.step_seconds, low)
    fit = foretell.fit(TINY, "4xh200", "dp4 +bf16", batch=8, calibration=file).prediction
    assert msgspec.structs.replace(fit, model=TINY) == _said(fit.plan, "4xh200", 8, file)
    scaled = foretell.scale(TINY, "4xh200", [2, 4], 8, only=ONLY, calibration=file)
    points = [one for line in scaled.lines for one in line.points]
    assert points
    for point in points:
        own = foretell.predict(TINY, f"{point.ranks}xh200", point.plan, 8, calibration=file)
        assert (point.step_seconds, point.memory_bytes) == (own.step_seconds, own.memory_bytes)


def test_fewer_busy_cores_are_faster_in_comparisons_too(tmp_path: Path) -> None:
    if cluster("this-machine").device.name != "cpu-core":
        pytest.skip("a GPU is here")
    file, model = _file(tmp_path, "cpu-core", "cpu"), "mlp"
    where = "this-machine:2" if cluster("this-machine").ranks > 1 else "this-machine"
    found = foretell.diff(model, where, "dp1", f"dp{cluster(where).ranks} +m2", 8, calibration=file)
    for step in (found.first, found.second):
        assert step == _said(step.plan, where, 8, file, model)


def test_what_is_kept_is_picked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path))
    plain = foretell.plan(TINY, "4xh200", 8, only=("dp",)).best
    file = _file(tmp_path, "h200")
    kept = foretell.plan(TINY, "4xh200", 8, only=("dp",)).best
    assert kept == foretell.plan(TINY, "4xh200", 8, only=("dp",), calibration=file).best != plain
    assert foretell.plan(TINY, "4xh200", 8, only=("dp",), calibration="none").best == plain
    assert foretell.plan(TINY, "4xh100", 8, only=("dp",)) is not None  # another device: nothing is kept


def test_better_hardware_is_better_than_what_was_measured(file: Path) -> None:
    """Corrections are of the hardware that was timed: they are not made again for what would be better."""
    (question,) = asked(TINY, "4xh200", 64, calibration=file)
    here = planning.answered(question.searching(only=("dp",))).found.best
    assert here is not None
    for knob in hardware(place_of(question).cluster):
        changed = knob.changed(question, 4.0)
        assert changed is not None
        place = place_of(changed)
        assert place.trainer == place_of(question).trainer
        assert place.cluster.device.measured == place_of(question).cluster.device.measured
        assert place.cluster != place_of(question).cluster
        assert place.cluster.text != question.cluster.text


def test_a_sweep_takes_a_file_for_the_clusters_of_its_device(file: Path) -> None:
    found = foretell.sweep(TINY, ["4xh200", "4xh100"], 8, only=("dp",), calibration=file, jobs=1).rows
    alone = foretell.sweep(TINY, "4xh100", 8, only=("dp",), jobs=1).rows
    plain = foretell.sweep(TINY, "4xh200", 8, only=("dp",), jobs=1).rows
    assert found[1] == alone[0] and found[0] != plain[0]
    with pytest.raises(BadInput, match="no cluster of the sweep"):
        foretell.sweep(TINY, "4xh100", 8, calibration=file)


def test_another_device_is_refused(file: Path) -> None:
    for ask in (
        lambda: foretell.plan(TINY, "4xh100", 8, calibration=file),
        lambda: foretell.why(TINY, "4xh100", "dp4", 8, calibration=file),
        lambda: foretell.scale(TINY, "4xh100", [4], 8, calibration=file),
        lambda: foretell.fit(TINY, "4xh100", calibration=file),
    ):
        with pytest.raises(BadInput, match="calibration is of h200"):
            ask()
