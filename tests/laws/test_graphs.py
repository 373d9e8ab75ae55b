"""Layers that are recorded: the host starts two graphs of each, and the device does what it did."""

from __future__ import annotations

import pytest

from foretell.cost.host import as_executed
from foretell.hardware.catalog import cluster
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.text import parse

LAYERS, MICROBATCHES = 12, 4
SMALL = f"gpt:layers={LAYERS},hidden=256,heads=4,vocab=1024,seq=128"


def foretold(plan: str, trainer: str) -> Prediction:
    asked = Request(model=SMALL, plan=parse(f"{plan} +m{MICROBATCHES}"), batch=8 * MICROBATCHES, trainer=trainer)
    return predict(resolve(asked).setting, cluster("8xh100"))


@pytest.mark.parametrize("trainer", ["pytorch", "megatron-core"])
@pytest.mark.parametrize("plan", ["dp8 +bf16", "dp4 tp2 +bf16", "pp2:1f1b dp4 +bf16"])
def test_recorded_layers_take_less_of_the_host_than_kernels_and_more_than_a_recorded_step(
    trainer: str, plan: str
) -> None:
    eager, graphed, captured = (foretold(f"{plan}{how}", trainer) for how in (" +eager", " +graphed", " +captured"))
    assert captured.step_seconds <= graphed.step_seconds < eager.step_seconds
    device = ("forward", "backward")
    assert [graphed.breakdown[part] for part in device] == [eager.breakdown[part] for part in device]
    assert graphed.memory.device == eager.memory.device


def test_each_layer_is_two_launches() -> None:
    setting = resolve(Request(model=SMALL, plan=parse("dp8 +bf16 +graphed"), batch=8)).setting
    plain, host = setting.trainer.host, as_executed(setting).host
    assert (host.launch, host.layer) == (0.0, 2 * plain.launch)
    assert as_executed(setting).execution == setting.trainer.execution
