"""What a step holds, pass by pass: steps on an H200 (studies/h200_steps/phases.jsonl)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.hardware.catalog import cluster
from foretell.model.autocast import held_under_autocast
from foretell.model.source import load
from foretell.units import WIDTH

STEPS = Path(__file__).parents[2] / "studies" / "h200_steps" / "phases.jsonl"
CASES = {
    # model and precision: how far off the most of all passes may be
    ("gpt2:seq=1024", "bf16:pure"): 0.012,
    ("llama:layers=8,hidden=2048,heads=32,kv_heads=8,ffn=8192,vocab=32000,seq=2048", "tf32"): 0.002,
    ("llama2-7b:layers=4,seq=2048", "bf16:pure"): 0.002,
    ("mistral-7b:layers=3,seq=4096", "bf16:pure"): 0.002,  # the update holds most
    ("gpt2-medium:seq=1024", "amp_bf16"): 0.002,
    ("roberta-base:seq=512", "amp_bf16"): 0.02,
    ("resnet50", "amp_bf16"): 0.02,
    ("alexnet", "amp_bf16"): 0.02,
}


def _steps() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in STEPS.read_text().splitlines()]
    return [one for one in found if (one["model"], one["precision"]) in CASES and not one["compile"]]


def _predicted(step: dict[str, Any]) -> Any:
    plan = f"dp1{' +recompute:block' if step['recompute'] else ''} +{step['precision']}"
    narrow = "" if step["precision"] == "tf32" else f"{',' if ':' in step['model'] else ':'}dtype=bf16"
    model = f"{step['model']}{narrow}"
    found = foretell.predict(model, cluster("1xh200"), plan, batch=step["batch"], optimizer=step["optimizer"])
    return found.memory


@pytest.mark.parametrize("step", _steps(), ids=lambda step: f"{step['model'].split(':')[0]} {step['batch']}")
def test_the_fullest_moment_is_as_measured(step: dict[str, Any]) -> None:
    memory = _predicted(step)
    assert memory.allocated / 2**30 == pytest.approx(step["peak_gib"], rel=CASES[step["model"], step["precision"]])
    assert ("update" in memory.peak_moment) == (step["update_gib"] == step["peak_gib"])


def test_gradients_rest_when_they_add_up_over_micro_batches() -> None:
    model, on = "llama3.2-1b:dtype=bf16", cluster("1xh200")
    once = foretell.predict(model, on, "dp1 +bf16:pure", batch=2, seq=2048).memory
    twice = foretell.predict(model, on, "dp1 +m2 +bf16:pure", batch=4, seq=2048).memory
    assert once.by_kind["gradients"] == 0
    assert twice.by_kind["gradients"] == 2 * 1_235_814_400
    assert twice.allocated - once.allocated == pytest.approx(twice.by_kind["gradients"], rel=1e-6)


def test_autocast_keeps_a_copy_for_each_product_and_sums_in_full() -> None:
    graph = load("vit-b-16:dtype=bf16", 2)
    eager, compiled = (held_under_autocast(graph, way) for way in (False, True))
    kept = {held.kept for held in eager.values()}
    assert {2, 4, 6} <= kept  # a norm's output for one product, a sum for its norm, an output for three projections
    assert all(compiled[home].kept <= held.kept for home, held in eager.items())
    products = [node.outputs[0] for node in graph.blocks[1].nodes if node.kind == "matmul"]
    assert all((1, number) not in eager for number in products)
    assert min(WIDTH[tensor.dtype] for tensor in graph.blocks[1].tensors) == 2
