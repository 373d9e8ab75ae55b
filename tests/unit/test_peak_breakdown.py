"""What is alive at the fullest moment: names, and bytes that add up to what memory says."""

from __future__ import annotations

import math

import pytest

import foretell
from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.oracle.predict import predict
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.timeline.peak_breakdown import AliveTensors, alive

LLAMA = "llama:layers=8,hidden=512,heads=8,kv_heads=8,ffn=2048,vocab=8000,seq=256"

PLANS = (
    "dp1 +bf16",
    "dp4:zero3 +m2 +bf16",
    "dp2:zero1 tp2:sp +bf16",
    "cp2:ring dp2 +bf16",
    "pp4:gpipe +m8 +bf16",
    "pp4:1f1b +m8 +bf16",
    "pp2:interleaved,v2 dp2:zero3 +m4 +bf16",
    "pp4:zb-h1 +m8 +bf16",
    "pp4:dualpipe +m8 +bf16",
    "dp4:zero3 +recompute:block +bf16",
    "dp4 +recompute:attention +bf16",
    "dp4:zero3 +recompute:every2 +bf16",
    "dp4:zero3 +recompute:first1 +bf16",
    "dp4 +offload:activations +bf16",
    "dp4 +offload:optimizer +bf16",
)


def _alive(
    model: str, text: str, trainer_name: str = "pytorch", most: int = 10**6
) -> tuple[tuple[AliveTensors, ...], float]:
    plan = parse(text)
    batch = 8 * plan.microbatches
    setting = Setting(load(model, 8, None, "bf16"), Job(batch=batch), plan, trainer(trainer_name))
    on = cluster("8xh100")
    used = predict(setting, on).memory
    return alive(priced(setting, on), on, used, most), used.device


@pytest.mark.parametrize("text", PLANS)
@pytest.mark.parametrize("name", ["pytorch", "nanotron", "megatron-core"])
def test_what_is_alive_adds_up(text: str, name: str) -> None:
    found, device = _alive(LLAMA, text, name)
    assert math.fsum(one.bytes for one in found) == pytest.approx(device, rel=1e-9)
    assert all(one.count >= 1 and one.bytes > 0 for one in found)


@pytest.mark.parametrize("model", ["resnet50", "densenet121", "unet", "bert-base", "mixtral-8x7b:layers=2,seq=128"])
def test_every_family_adds_up(model: str) -> None:
    found, device = _alive(model, "dp2 +bf16")
    assert math.fsum(one.bytes for one in found) == pytest.approx(device, rel=1e-9)


def test_equal_layers_are_added_up_by_hand() -> None:
    """gate: 2 samples x 256 tokens x 2048 features x 2 bytes in each of 8 layers of one of 4 ranks."""
    found, _ = _alive(LLAMA, "dp4 +bf16")
    gate = next(one for one in found if "feed_forward.gate matmul" in one.name)
    assert gate == AliveTensors(
        "layers.0..7.feed_forward.gate matmul output", "activation", 8, 8 * 2 * 256 * 2048 * 2.0
    )


def test_weights_have_names_by_hand() -> None:
    """gate: 512 x 2048 weights in each of 8 layers, of 2 bytes, with 12 bytes of master copy and Adam's states."""
    found = {one.name: one for one in _alive(LLAMA, "dp4 +bf16")[0]}
    assert found["layers.0..7.feed_forward.gate.weight"].bytes == 8 * 512 * 2048 * 2
    assert found["layers.0..7.feed_forward.gate.weight, states"].bytes == 8 * 512 * 2048 * 12
    shared = {one.name: one for one in _alive(LLAMA, "dp4:zero1 +bf16")[0]}
    states = [one.bytes for name, one in found.items() if name.endswith(", states")]
    assert shared["states"].bytes >= sum(states) / 4  # of the fullest rank, which has whole weights: none by name


def test_micro_batches_in_flight_are_added_up() -> None:
    """The first of four pipeline ranks keeps four micro-batches of its two layers, as 1f1b says."""
    found, _ = _alive(LLAMA, "pp4:1f1b +m8 +bf16")
    gate = next(one for one in found if "feed_forward.gate matmul" in one.name)
    assert (gate.name, gate.count) == ("layers.0..1.feed_forward.gate matmul output", 8)


def test_only_the_largest_are_told() -> None:
    told, device = _alive(LLAMA, "dp4 +bf16", most=3)
    everything, _ = _alive(LLAMA, "dp4 +bf16")
    assert told[:3] == everything[:3]
    assert told[3].count == sum(one.count for one in everything[3:])
    assert math.fsum(one.bytes for one in told) == pytest.approx(device)
    sizes = [one.bytes for one in told[:3]]
    assert sizes == sorted(sizes, reverse=True)


def test_the_moment_after_the_update_has_no_activations() -> None:
    small = "llama:layers=8,hidden=512,heads=8,kv_heads=8,ffn=2048,vocab=8000,seq=2"
    found, device = _alive(small, "dp4:zero1 +bf16", "nanotron")
    used = foretell.predict(small, cluster("4xh100"), "dp4:zero1 +bf16", batch=8, trainer="nanotron").memory
    assert used.peak_moment == "the update of weights"
    assert not any(one.kind == "activation" for one in found)
    assert math.fsum(one.bytes for one in found) == pytest.approx(device)
