"""What FSDP2 copies on a device's own stream, by hand; and positions turned as complex numbers, which nothing fuses."""

from __future__ import annotations

import msgspec
import pytest

from foretell.cost.kernels import chains, kernel_seconds, memory_rate
from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
from foretell.hardware.members import device
from foretell.plan.job import Job
from foretell.plan.policies.precision import FORMATS
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.action import Compute
from program_cases import load, program

MODEL = "llama:layers=4,hidden=512,heads=8,ffn=1024,vocab=1000"
LAYERS = 4 * (4 * 512 * 512 + 3 * 512 * 1024 + 2 * 512)
ROOT = 2 * 1000 * 512 + 512


def copied(plan: str, trained_by: str) -> float:
    """Bytes that the seconds of a micro-batch's copies stand for."""
    setting = Setting(load(MODEL, 8), Job(batch=8), parse(plan), trainer(trained_by))
    traffic = priced(setting, cluster("8xh100")).traffic
    return sum(one.slot_copies for one in traffic) * memory_rate(device("h100"))


@pytest.mark.parametrize(
    ("plan", "trained_by", "layer", "root"),
    [
        # out of two messages, read and written in 16 bits; gradients read in 16 bits, written as they travel
        ("dp8:zero3 +bf16", "fsdp", 2 * 4 + 2 + 2, 4 + 2 + 2),
        ("dp8:zero3 +bf16", "torchtitan", 2 * 4 + 2 + 4, 4 + 2 + 4),
        ("dp8:zero2 +bf16", "megatron-core", 0, 0),  # its weights are views of what travels
        ("dp8:zero3 +bf16", "llm-foundry", 0, 0),
        ("dp8 +bf16", "fsdp", 0, 0),
    ],
)
def test_weights_in_shares_are_copied_out_and_gradients_in(plan: str, trained_by: str, layer: int, root: int) -> None:
    assert copied(plan, trained_by) == pytest.approx(layer * LAYERS + root * ROOT)


def test_no_chain_takes_in_a_complex_product() -> None:
    made = program(MODEL, "dp2 +bf16 +recompute:operators", 4)
    bodies = [body for stage in made.stages for slot in "FB" for body, _ in stage.passes(slot)]
    joined, apart = (
        [one for body in bodies for one in chains(body.actions, "compiled", False, alone) if isinstance(one, Compute)]
        for alone in (False, True)
    )
    turned = [one for one in apart if one.operator == "rotary"]
    whole = [one for body in bodies for one in body.actions if isinstance(one, Compute) and one.operator == "rotary"]
    assert len(turned) == len(whole) > 0
    assert len(joined) < len(apart)
    runs, on = msgspec.structs.replace(trainer("torchtitan"), execution="compiled"), device("h100")
    for one in turned:
        price = kernel_seconds(one, on, FORMATS["bf16"], runs)
        elements = one.loops["row"] * one.loops["position"] * one.loops["feature"]
        assert price.launches == 3
        assert price.seconds >= elements * (2 + 4 + 4 + 4 + 4 + 2) / memory_rate(on)
