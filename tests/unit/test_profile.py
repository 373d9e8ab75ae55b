"""Layers timed one by one, and predictions that take what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import foretell
from answers import documented
from foretell.calibration.held import HeldStorages
from foretell.calibration.profile import layers_of, profile
from foretell.cost.samples import LayerSample, Profile, sample
from foretell.hardware.catalog import cluster
from foretell.modules import build
from foretell.oracle.profiles import layer_factors, predicted_layers
from foretell.plan.trainer import trainer
from foretell.records import store
from foretell.records.record import record
from foretell.trust import trust

MODEL = "gpt2:layers=3,hidden=64,heads=2,vocab=128,seq=16"
PYTORCH = trainer("pytorch")


@pytest.fixture(scope="module")
def found() -> Profile:
    return profile(MODEL, 2, "cpu", quick=True)


def test_every_layer_is_timed_both_ways(found: Profile) -> None:
    timed = {(one.about.path, one.about.part) for one in found.samples if isinstance(one.about, LayerSample)}
    for path, _ in layers_of(build(MODEL)):
        assert (path, "forward") in timed
    for path in ("layers.0", "layers.2", "head", "loss", "embedding"):
        assert (path, "backward") in timed
    assert ("", "update") in timed
    assert found.gamma > 0
    weights = sum(parameter.numel() for parameter in build(MODEL).parameters())
    assert found.peak_bytes > 16 * weights  # weights, gradients and two states of AdamW, and activations


OWN = """
import torch
from torch import nn

def build():
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8 * 36, 10)]
    return nn.Sequential(*layers), torch.randn(2, 3, 8, 8)
"""


def test_layers_of_ones_own_that_work_in_place(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    trust(f"{tmp_path}/own.py:build")
    timed = profile(f"{tmp_path}/own.py:build", 2, "cpu", quick=True)
    found = {(one.about.path, one.about.part) for one in timed.samples if isinstance(one.about, LayerSample)}
    assert {("0", "backward"), ("1", "forward"), ("1", "backward"), ("3", "backward"), ("loss", "forward")} <= found
    assert all(one.p50 > 0 for one in timed.samples)


def _slow(device_seconds: float, found: Profile) -> Profile:
    """A profile on an H100 whose layers take so many times what formulas say."""
    device = cluster("h100").device
    machine = msgspec.structs.replace(found.machine, device="h100", kind="cuda")
    plain = msgspec.structs.replace(found, machine=machine)
    samples = [
        sample("profile", LayerSample(path=path, part=part), [device_seconds * own + started])
        for key, (own, started) in predicted_layers(device, PYTORCH, plain).items()
        for path, part in [key.split(" ")]
    ]
    return msgspec.structs.replace(plain, samples=tuple(samples))


def test_factors_are_measured_over_predicted(found: Profile) -> None:
    """Three equal layers are one in the graph; the factor of a layer is its own."""
    slow = _slow(50.0, found)
    factors = layer_factors(cluster("h100").device, PYTORCH, slow)
    assert factors
    assert all(factor == pytest.approx(50) for factor in factors.values())
    more = sample("profile", LayerSample(path="layers.1", part="forward"), [1.0])
    both = msgspec.structs.replace(slow, samples=(*slow.samples, more))
    assert layer_factors(cluster("h100").device, PYTORCH, both)["layers.0 forward"] > 100


def test_a_prediction_takes_what_was_measured(found: Profile, tmp_path: Path) -> None:
    slow = _slow(50.0, found)
    file = tmp_path / "profile.json"
    store.save(file, record("profile", msgspec.to_builtins(slow), model=MODEL))
    plain = foretell.predict(MODEL, "h100", "dp1", 2)
    measured = foretell.predict(MODEL, "h100", "dp1", 2, profile=file)
    said = sum(own + started for own, started in predicted_layers(cluster("h100").device, PYTORCH, slow).values())
    assert measured.step_seconds > plain.step_seconds
    assert measured.provenance["compute"].startswith("measured")
    assert said > 0
    with pytest.raises(foretell.errors.BadInput, match="profile is of"):
        foretell.predict(f"{MODEL},tied=false", "h100", "dp1", 2, profile=file)
    with pytest.raises(foretell.errors.BadInput, match="profile is of"):
        foretell.predict(MODEL, "a100", "dp1", 2, profile=file)


def test_the_verb(foretell: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    ran = foretell("profile", MODEL, "--batch", "2", "--device", "cpu", "--quick", "--out", str(file), "--json")
    assert ran.code == 0, ran.err
    told = documented("profile", ran.out)
    assert told["forward"] == pytest.approx(sum(one.get("forward", 0.0) for one in told["layers"].values()))
    asked = ("predict", MODEL, "--on", "this-machine:1", "--plan", "dp1", "--batch", "2", "--json")
    answered = foretell(*asked, "--calibration", "none", "--profile", str(file))
    assert "provenance" in answered.out, answered.out + answered.err
    measured = json.loads(answered.out)
    assert measured["provenance"]["compute"].startswith("measured")
    assert foretell("profile", "nothing", "--device", "cpu").code == 2
    assert foretell(*asked, "--profile", "missing.json").code == 2


def test_held_counts_storages_until_they_are_gone() -> None:
    with HeldStorages() as held:
        x = torch.ones(1000)
        y = x + 1
        z = y.view(10, 100)
        del x
        w = torch.ones(500)
    assert held.peak == 4 * 2000
    assert held.now == 4 * 1500
    del y, z, w
    assert held.now == 0
