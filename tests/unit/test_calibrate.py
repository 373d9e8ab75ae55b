"""Measuring this machine: a quick calibration of its processor, and what predictions make of it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from answers import documented
from foretell.calibration.case import Scope
from foretell.calibration.measure import SampleJournal, Wanted, measure
from foretell.calibration.probes import optimizer as optimizer_probe
from foretell.calibration.probes import probes
from foretell.cost.collectives import library_of
from foretell.cost.samples import CollectiveSample, UpdateSample, calibration
from foretell.errors import BadInput
from foretell.hardware.this_machine import processor
from foretell.model.optimizer import optimizer
from foretell.records import store

MODEL = "gpt2:layers=2,hidden=64,heads=2,vocab=256,seq=32"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quick calibration of this machine's processor."""
    path = tmp_path_factory.mktemp("calibration") / "cpu.json"
    measure(Wanted("cpu", quick=True), path)
    return path


def test_every_probe_has_samples_with_their_spread(file: Path) -> None:
    found = calibration(store.read(file))
    measured = {one.probe for one in found.samples}
    several = processor().ranks > 1
    assert measured == set(probes()) - {"copies", "sustained", "wrapped"} - ({"collectives"} if not several else set())
    assert not found.complete, "a quick one is not all of it"
    assert found.machine.device == "cpu-core"
    assert "torch" in found.machine.versions
    for one in found.samples:
        assert one.values
        assert min(one.values) <= one.p10 <= one.p50 <= one.p90 <= max(one.values)
    assert found.fits


def test_a_finished_calibration_has_nothing_left_to_do(file: Path) -> None:
    before = calibration(store.read(file)).samples
    again = measure(Wanted("cpu", quick=True, resume=True), file)
    assert again.found.samples == before
    assert not list(file.parent.glob("*.part"))


def test_a_stopped_calibration_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "cpu.json"
    only = ("matmul", "loss")
    with pytest.raises(BadInput, match="nothing was measured"):
        measure(Wanted("cpu", quick=True, only=only, minutes=1e-9), out)
    assert not out.exists()
    part = measure(Wanted("cpu", quick=True, only=only[:1]), out)
    assert {one.probe for one in part.found.samples} == {only[0]}
    whole = measure(Wanted("cpu", quick=True, only=only, resume=True), out)
    assert not whole.found.complete, "two probes are not all"
    assert {one.probe for one in whole.found.samples} == set(only)


def test_a_second_pass_times_everything_once_more(tmp_path: Path) -> None:
    out = tmp_path / "cpu.json"
    once = measure(Wanted("cpu", quick=True, only=("loss",)), out).found
    twice = measure(Wanted("cpu", quick=True, only=("loss",), passes=2, resume=True), out).found
    assert [one.key for one in twice.samples] == [one.key for one in once.samples]
    for before, after in zip(once.samples, twice.samples, strict=True):
        first, second = after.by_pass
        assert first == before.values
        assert second
    kept = measure(Wanted("cpu", quick=True, only=("loss",), passes=2, resume=True), out).found
    assert kept.samples == twice.samples


def test_a_journal_that_was_cut_off_is_read_as_far_as_it_goes(file: Path, tmp_path: Path) -> None:
    found = calibration(store.read(file))
    out = tmp_path / "cpu.json"
    journal = SampleJournal(out, found.machine, resume=False)
    for one in found.samples[:3]:
        journal.add(one)
    text = journal.path.read_bytes()
    journal.path.write_bytes(text[: len(text) - 20])
    assert SampleJournal(out, found.machine, resume=True, earlier=out).samples == list(found.samples[:2])


def test_what_was_timed_in_a_hurry_is_timed_again_in_a_whole_one(file: Path, tmp_path: Path) -> None:
    found = calibration(store.read(file))
    assert found.quick and found.machine.host
    for quick, count in ((True, len(found.samples)), (False, 0)):
        journal = SampleJournal(tmp_path / "whole.json", found.machine, resume=True, earlier=file, quick=quick)
        assert len(journal.samples) == count
        journal.close()


def test_another_machine_is_not_gone_on_with(file: Path, tmp_path: Path) -> None:
    import msgspec

    found = calibration(store.read(file))
    other = msgspec.structs.replace(found.machine, title="another processor")
    SampleJournal(tmp_path / "cpu.json", other, resume=False)
    with pytest.raises(BadInput, match="another machine"):
        SampleJournal(tmp_path / "cpu.json", found.machine, resume=True, earlier=None)


@pytest.mark.skipif(processor().ranks < 2, reason="one core")
def test_collectives_were_timed_among_the_cores(file: Path) -> None:
    found = [one.about for one in calibration(store.read(file)).samples if isinstance(one.about, CollectiveSample)]
    assert {about.kind for about in found} >= {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"}
    assert max(about.ranks for about in found) == processor().ranks


def test_cores_talk_by_gloo() -> None:
    assert library_of(processor()).name == "gloo"


def _predicted(foretell: Callable[..., Any], *more: str) -> dict[str, Any]:
    ran = foretell("predict", MODEL, "--on", "this-machine", "--plan", "dp1", "--batch", "4", "--json", *more)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_predictions_rest_on_it(
    foretell: Callable[..., Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path))
    plain = _predicted(foretell)
    measured = _predicted(foretell, "--calibration", str(file))
    assert plain["provenance"]["compute"].startswith("data sheet")
    assert measured["provenance"]["compute"].startswith("measured")
    assert "measured here on" in measured["provenance"]["host"]
    assert measured["step_seconds"] != plain["step_seconds"]
    low, high = measured["interval"]
    assert high / low < plain["interval"][1] / plain["interval"][0]
    (tmp_path / "calibration-cpu.json").write_bytes(file.read_bytes())
    assert _predicted(foretell)["step_seconds"] == measured["step_seconds"]
    assert _predicted(foretell, "--calibration", "none") == plain


@pytest.mark.skipif(processor().ranks < 2, reason="one core")
def test_two_ranks_wait_for_measured_collectives(
    foretell: Callable[..., Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path))
    asked = ("predict", MODEL, "--on", "this-machine:2", "--plan", "dp2", "--batch", "4", "--json")
    found = json.loads(foretell(*asked, "--calibration", str(file)).out)
    assert found["provenance"]["exposed.dp"].startswith("measured")
    assert found["breakdown"]["exposed.dp"] > 0


def test_the_page_and_mistakes(foretell: Callable[..., Any], file: Path, tmp_path: Path) -> None:
    asked = ("calibrate", "--device", "cpu", "--quick", "--only", "loss", "--out", str(tmp_path / "loss.json"))
    ran = foretell(*asked)
    assert ran.code == 0, ran.err
    assert "cross_entropy forward fp32" in ran.out
    assert documented("calibrate", foretell(*asked, "--json").out)["complete"] is False
    assert foretell("calibrate", "--device", "cpu", "--only", "nothing").code == 2
    wrong = foretell("predict", MODEL, "--on", "8xh100", "--plan", "dp8", "--batch", "8", "--calibration", str(file))
    assert wrong.code == 2
    assert "h100" in wrong.err
    missing = foretell("predict", MODEL, "--on", "h100", "--plan", "dp1", "--batch", "8", "--calibration", "no.json")
    assert missing.code == 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_case_has_a_price_that_it_corrects(device: str) -> None:
    """Also those of an accelerator, which cannot be timed here: each sample becomes a point of its kind."""
    from foretell.calibration.case import Scope
    from foretell.cost.calibrated import kernel_points
    from foretell.cost.samples import Calibration, Kernel, MeasuredMachine, UpdateSample, sample
    from foretell.hardware.members import device as member

    cases = [case for name in probes() for case in probes()[name].cases(Scope(device, False, 1))]
    keys = {sample("any", case.about, [1.0]).key for case in cases}
    assert len(keys) == len(cases)
    kernels = [case.about for case in cases if isinstance(case.about, Kernel | UpdateSample)]
    kernels = [one for one in kernels if not isinstance(one, Kernel) or not one.sustained]
    machine = MeasuredMachine(device="h200", title="", kind="cuda", count=1, memory_bytes=1)
    found = Calibration(machine=machine, samples=tuple(sample("any", one, [1.0]) for one in kernels), complete=True)
    points = kernel_points(member("h200"), found)
    assert sum(len(own) for kind, own in points.items() if len(kind.split()) <= 3) >= len(kernels)


@pytest.mark.parametrize("verb", [("calibrate", "--quick"), ("profile", "lenet")])
def test_a_folder_that_is_not_there_is_refused_before_anything_is_measured(
    foretell: Any, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    ran = foretell(*verb, "--out", str(tmp_path / "nowhere" / "x.json"))
    assert ran.code == 2 and "there is no folder" in ran.err and "--out" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_an_optimizer_is_timed_fused_where_torch_has_it_so() -> None:
    """Of a GPU the cases alone: every one is a class of torch that takes what it is given."""
    ways: dict[str, set[str]] = {}
    for case in optimizer_probe.cases(Scope("cuda", quick=False, count=1)):
        assert isinstance(case.about, UpdateSample)
        ways.setdefault(case.about.rule, set()).add(case.about.way)
    assert ways["adamw"] == {"default", "fused"} and ways["rmsprop"] == {"default"}
    for rule, own in ways.items():
        member = optimizer(rule)
        for way in own:
            given = {**member.arguments, "lr": 1e-4, **({"fused": True} if way == "fused" else {})}
            inspect.signature(getattr(torch.optim, member.torch)).bind([], **given)
