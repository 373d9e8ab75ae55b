"""Messages of FSDP2 that are memory of their own, by hand: the next weights, and the last gradients."""

from __future__ import annotations

import msgspec
import pytest

from foretell.hardware.catalog import cluster
from foretell.oracle.predict import predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.text import parse
from foretell.program.action import Allocate
from foretell.program.body import Body
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.program.program import Program

HIDDEN, FFN = 256, 1024
LAYER = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN + 2 * HIDDEN
FEW = f"llama:hidden={HIDDEN},heads=8,kv_heads=8,ffn={FFN},vocab=512,seq=128,layers="


def _program(plan: str, trainer: str = "pytorch", layers: int = 4) -> Program:
    return lower(resolve(Request(model=f"{FEW}{layers}", plan=parse(plan), batch=8, trainer=trainer)).setting)


def _held(body: Body) -> dict[str, float]:
    """Bytes of messages that begin with a pass of a layer, by what they are of."""
    own = (action for action in body.actions if isinstance(action, Allocate) and " weights, " in action.name)
    return {action.name.rpartition(", ")[2]: float(action.bytes) for action in own}


@pytest.mark.parametrize(
    "plan, trainer, wire", [("dp8:zero3 +bf16:pure", "pytorch", 2), ("dp8:zero3 +bf16", "torchtitan", 4)]
)
def test_a_layer_has_its_neighbours_messages_beside_it(plan: str, trainer: str, wire: int) -> None:
    layer = next(one for one in expand(_program(plan, trainer)).stages[0].layers if one.times > 1)
    assert _held(layer.forward) == {"gathered": 2 * LAYER}
    assert _held(layer.backward) == {"gathered": 2 * LAYER, "summed": wire * LAYER}


def test_a_layer_alone_has_no_neighbours() -> None:
    layers = {one.run.layer: one for one in expand(_program("dp8:zero3 +bf16:pure", layers=1)).stages[0].layers}
    (alone,) = (one for name, one in layers.items() if name)
    assert _held(alone.forward) == {"gathered": 2 * LAYER} and not _held(alone.backward)


@pytest.mark.parametrize("plan, trainer", [("dp8:zero3", "deepspeed"), ("dp8:zero3", "llm-foundry"), ("dp8", "fsdp")])
def test_others_keep_no_messages(plan: str, trainer: str) -> None:
    for layer in expand(_program(f"{plan} +bf16", trainer)).stages[0].layers:
        assert not _held(layer.forward) and not _held(layer.backward)


def test_the_peak_is_that_much_higher() -> None:
    """Of a model whose layers are its fullest moment."""
    setting = _program("dp8:zero3 +bf16:pure +recompute:block", layers=8).setting
    on = cluster("8xh100")
    storage = msgspec.structs.replace(setting.trainer.storage, keeps_messages=False)
    trainer = msgspec.structs.replace(setting.trainer, storage=storage)
    without = predict(msgspec.structs.replace(setting, trainer=trainer), on).memory.allocated
    added = predict(setting, on).memory.allocated - without
    assert added == pytest.approx(2 * LAYER + 2 * LAYER, rel=1e-9)
