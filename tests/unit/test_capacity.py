"""Devices for capacity questions alone: figures with sources, tensors as elsewhere, no times."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from foretell.cli.command import cli
from foretell.errors import BadInput
from foretell.hardware import catalog, members
from foretell.hardware.capacity import capacity_device, names, read
from foretell.oracle.capacity import TENSORS, capacity
from foretell.oracle.predicted import predicted
from foretell.oracle.request import read as question

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
PLANS = ("dp2 +bf16", "dp2:zero3 +bf16 +recompute:block", "tp2", "pp2:1f1b +m4")


@pytest.mark.parametrize("name", names())
def test_every_figure_has_a_source(name: str) -> None:
    device = capacity_device(name)
    assert {"memory", "memory_bandwidth", *(f"peak.{precision}" for precision in device.peak)} == {*device.sources}
    assert device.peak and device.memory_bytes > 8 * 2**30
    assert name not in (*members.names("devices"), *members.aliases())


@pytest.mark.parametrize("plan", PLANS)
def test_tensors_are_those_of_any_device(plan: str) -> None:
    """Weights, gradients, states and activations do not depend on what multiplies them."""
    asked = question(model=TINY, plan=plan, batch=8)
    _, found = predicted(asked.changed(cluster=catalog.cluster("2xa100-80")))
    theirs = {kind: size for kind, size in found.memory.by_kind.items() if kind in TENSORS and size}
    ours = capacity(asked, "2xtpu-v6e")
    assert ours.by_kind == theirs
    assert ours.tensor_bytes == sum(theirs.values())
    assert ours.step_seconds is None


def test_nothing_is_told_of_what_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes, its kernels and its calibrations are none of the device that was asked about."""
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path))
    notes = capacity(question(model=TINY, plan="dp2"), "8xtpu-v6e").notes
    assert "the plan uses 2 of the 8 devices" in notes
    assert any("no batch is given" in note for note in notes)
    assert not [note for note in notes if "GPU" in note or "node" in note or "h100" in note]
    assert "plan uses" not in " ".join(capacity(question(model=TINY, plan="dp8", batch=8), "8xtpu-v6e").notes)


def test_more_than_a_device_has_does_not_fit() -> None:
    small, large = (
        capacity(question(model="llama3-8b", plan="dp1 +bf16", batch=1), name) for name in ("tpu-v5e", "tpu-v7")
    )
    assert small.tensor_bytes == large.tensor_bytes
    assert not small.fits
    assert large.fits
    assert small.parameters == 8_030_261_248


@pytest.mark.parametrize("verb", ["predict", "fit", "plan"])
def test_times_are_refused_with_a_way_out(verb: str) -> None:
    plan = ["--plan", "dp2"] if verb == "predict" else []
    refused = CliRunner().invoke(cli, [verb, TINY, "--on", "2xtrainium2", "--batch", "8", *plan]).exception
    assert isinstance(refused, BadInput)
    assert "no step has a time" in refused.what
    assert "foretell capacity MODEL --on 2xtrainium2" in refused.fix


def test_exit_codes() -> None:
    ask = ["capacity", "llama3-8b", "--plan", "dp1 +bf16", "--batch", "1"]
    assert CliRunner().invoke(cli, [*ask, "--on", "tpu-v7"]).exit_code == 0
    assert CliRunner().invoke(cli, [*ask, "--on", "tpu-v5e"]).exit_code == 1
    for more, word in ((["--on", "8xh100"], "whole"), (["--on", "tpu-v9"], "'tpu-v9'"), ([], "no devices")):
        refused = CliRunner().invoke(cli, [*ask, *more]).exception
        assert isinstance(refused, BadInput)
        assert word in refused.what


def test_a_figure_without_a_source_is_refused(tmp_path: Path) -> None:
    text = 'title = "x"\nmemory = { value = "1 GiB", source = "nobody" }\n[peak]\n[sources]\n'
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(BadInput):
        read(tmp_path / "mine.toml")


@pytest.mark.parametrize("words", [["--on", "8xgaudi3"], ["llama3-70b", "--on", "8xgaudi3"], ["--on", "gaudi3"], []])
def test_the_way_out_is_on_the_devices_that_were_typed(words: list[str]) -> None:
    refused = CliRunner().invoke(cli, ["capacity", *words]).exception
    assert isinstance(refused, BadInput)
    words_out = shlex.split(refused.fix)
    assert set(words) <= set(words_out)
    assert CliRunner().invoke(cli, words_out[1:]).exit_code in (0, 1)
