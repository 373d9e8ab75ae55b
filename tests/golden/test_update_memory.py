"""What an update and accumulation take beside weights and states, by hand from the trainers' own code."""

from __future__ import annotations

import pytest

from foretell.cost.memory import memory_constants
from foretell.hardware import catalog
from foretell.model.source import load
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.lower import lower
from foretell.program.mesh import mesh
from foretell.program.weight_state import WeightStatePlan

GPT = "gpt:layers=3,hidden=64,heads=4,vocab=50,seq=32,tied=false"


def update_bytes(plan: str, model: str = GPT, on: str = "deepspeed") -> float:
    """Bytes for each parameter of a rank that an update makes for itself."""
    parsed = parse(plan)
    setting = Setting(load(model, 8), Job(batch=8), parsed, trainer(on))
    return memory_constants(setting, mesh(parsed), catalog.cluster("8xa100-80")).gathered


@pytest.mark.parametrize(
    ("plan", "size"),
    [
        ("dp1 +bf16", 6.0),  # flat in 16 bits, and that in fp32
        ("dp8:zero1 +bf16", 6 / 8),
        ("dp4:zero2 tp2 +fp16", 6 / 4),
        ("dp8:zero3 +bf16", 6 / 8),
        ("dp8:zero1 +bf16 +offload:optimizer", 0.0),
        ("dp8:zero1 +fp32", 0.0),
    ],
)
def test_deepspeed_makes_the_gradients_of_a_partition_wide(plan: str, size: float) -> None:
    assert update_bytes(plan) == pytest.approx(size)
    assert update_bytes(plan, on="megatron-lm") == 0.0


def test_zero3_does_so_a_group_at_a_time() -> None:
    """Of a rank's share of Llama 3 70B among 8, 8.8 billion parameters, one billion."""
    share = 70_553_706_496 / 8
    assert update_bytes("dp8:zero3 +bf16", "llama3-70b") * 70_553_706_496 == pytest.approx(6 * 1e9)
    assert update_bytes("dp8:zero2 +bf16", "llama3-70b") * 70_553_706_496 == pytest.approx(6 * share)


def gradients(plan: str, on: str) -> float:
    """Bytes of gradients that lie on a rank between the passes."""
    setting = Setting(load(GPT, 8), Job(batch=8), parse(plan), trainer(on))
    program = lower(setting)
    own = program.own(0)
    return WeightStatePlan(setting, mesh(parse(plan))).resting(own, 1).gradients


def test_flat_gradients_cover_what_is_frozen() -> None:
    """Three blocks of 64 hidden units: 12 x 64 x 64 weights, 13 x 64 biases and norms; adapters of rank 2 at four
    products take (64 + 192 + 64 + 64 + 64 + 256 + 256 + 64) x 2. Embeddings and the head have no adapter."""
    block, adapters = 12 * 64 * 64 + 13 * 64, 2 * (64 + 192 + 64 + 64 + 64 + 256 + 256 + 64)
    plan = "dp2:zero3 +m2 +bf16:pure +lora2"
    assert gradients(plan, "litgpt") == 3 * 2 * (block + adapters)
    assert gradients(plan, "fsdp") == 3 * 2 * adapters / 2
