"""Bands by kind of evidence: better evidence is never wider, and every part says what it rests on."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import pytest

import foretell
from foretell.hardware.catalog import cluster
from foretell.oracle.bands import ANCHORED, REASONS, anchored, bands
from foretell.oracle.evidence import CARRIED, MEASURED, RANKED, SHEET, Evidence, evidence, software
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import names, trainer
from foretell.program.lower import lower
from foretell.units import show_factor

LLAMA = "llama:layers=2,hidden=256,heads=8,kv_heads=8,ffn=512,vocab=512,seq=64"
KERNELS = Path(__file__).parents[2] / "studies" / "kernels"


def _evidence(model: str, place: str, text: str, name: str = "pytorch") -> Evidence:
    plan = parse(text)
    batch = 16 * plan.microbatches
    setting = Setting(foretell.load(model, 16), Job(batch=batch), plan, trainer(name))
    return evidence(lower(setting), cluster(place), {"forward": 1.0}, 1.0)


def _made(**words: object) -> Evidence:
    best: dict[str, object] = {
        "device": "h200",
        "products": "matmul",
        "compute": MEASURED,
        "communication": {"dp": MEASURED},
        "software": MEASURED,
        "trainer": "nanotron",
        "levels": ("nanotron",),
        "waits": 0.0,
        "nodes": 1,
    }
    return Evidence(**{**best, **words})  # type: ignore[arg-type]


def test_worse_evidence_is_never_narrower() -> None:
    for better, worse in itertools.pairwise(RANKED):
        assert _made(compute=better).band() <= _made(compute=worse).band()
        assert _made(communication={"dp": better}).band() <= _made(communication={"dp": worse}).band()
    assert _made().band() <= _made(nodes=2).band()
    assert _made(communication={}).band() <= _made().band()
    assert _made().band() <= _made(products="convolution").band()
    assert _made().band() < _made(software=CARRIED).band()
    assert _made().band() < _made(spread=0.1).band()


def test_the_shipped_bands_are_learnt_and_complete() -> None:
    """Nothing is negative, all reasons have a width, and runs of sources left out lie inside nine times of ten."""
    for learnt, reasons in ((bands().predicted, REASONS), (anchored(), ANCHORED)):
        assert set(learnt.widths) == set(reasons)
        assert min(learnt.widths.values()) >= 0
        assert learnt.widths["always"] > 0
        assert learnt.sources > 20
        assert learnt.runs > 2000
        assert 0.85 <= learnt.inside <= 0.95


def test_the_weakest_axis_counts() -> None:
    one = _made(communication={"dp": SHEET, "tp": MEASURED})
    assert one.network == SHEET
    assert one.band() == _made(communication={"dp": SHEET}).band()


def test_factors_multiply() -> None:
    one = _made(software=CARRIED, nodes=2, products="convolution")
    assert one.band() == pytest.approx(math.prod(one.factors().values()))
    known = {"always", "software", "ranks", "nodes", "convolutions"}
    assert set(one.factors()) == known | (
        {"trainer"} if bands().predicted.unseen > bands().predicted.stretch else set()
    )
    low, high = one.interval(2.0)
    assert low * high == pytest.approx(4.0)


def test_what_would_narrow_a_band_is_told_with_how_far() -> None:
    """A calibration takes away what is not known of kernels and software; where all is known it would not help."""
    doubtful = _made(compute=CARRIED, software=CARRIED, communication={"dp": SHEET})
    ways = doubtful.narrower()
    better = _made(communication={"dp": SHEET}).band()
    assert f"{show_factor(better)} with `foretell calibrate` on one h200" in ways
    assert any("nccl-tests" in way for way in ways) == (bands().predicted.widths["links"] > 0)
    assert not any("calibrate" in way for way in _made().narrower())


def test_measured_devices_are_those_of_the_studies() -> None:
    """A device whose kernels nobody timed is never called measured."""
    with (KERNELS / "measured.csv").open(newline="") as file:
        timed = " ".join({row["gpu"].lower() for row in csv.DictReader(file)})
    assert _evidence(LLAMA, "mi300x", "dp1 +bf16").compute == MEASURED
    assert "mi300x" in timed
    assert _evidence(LLAMA, "rtx4090", "dp1 +bf16").compute == CARRIED
    assert "4090" not in timed
    assert _evidence(LLAMA, "l40s", "dp1 +bf16").compute == CARRIED


def test_links_say_how_they_are_known() -> None:
    found = _evidence(LLAMA, "16xh100", "dp2 tp8 +bf16")
    assert found.communication == {"dp": MEASURED, "tp": MEASURED}
    assert found.nodes == 2
    far = _evidence(LLAMA, "2x8xh100,eth-25", "dp2 tp8 +bf16")
    assert RANKED.index(far.communication["dp"]) > 0
    assert _evidence(LLAMA, "h100", "dp1 +bf16").network == ""


def test_trainers_are_fitted_where_their_sources_say_so() -> None:
    fitted = {name for name in names() if software(trainer(name)) == MEASURED}
    assert {"nanotron", "megatron-deepspeed", "internevo"} <= fitted
    assert not fitted & {"pytorch", "fsdp", "chainer", "torchtitan"}


def test_convolutions_are_told_from_products() -> None:
    assert _evidence("resnet50", "v100-16", "dp1").products == "convolution"
    assert _evidence(LLAMA, "v100-16", "dp1").products == "matmul"


def test_every_part_says_what_it_rests_on() -> None:
    found = foretell.predict(LLAMA, "16xh100", "dp2 tp8 +bf16", batch=16)
    assert set(found.provenance) == {"compute", "exposed.dp", "exposed.tp", "host", "memory", "interval"}
    for part, text in found.provenance.items():
        assert part == "interval" or text.split(":")[0] in RANKED
    low, high = found.interval
    assert found.provenance["interval"].startswith(f"{show_factor(high / found.step_seconds)} (90 % interval)")
    assert low < found.step_seconds < high
