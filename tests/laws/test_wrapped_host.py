"""Laws of the host's work around modules that PyTorch wraps: more of them never take less, others are not charged."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.price import PricedProgram, priced
from foretell.cost.wrapped_timed import TOLD, as_timed
from foretell.hardware.catalog import cluster
from foretell.oracle.predict import predict
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, of_today, trainer
from foretell.plan.wrapped import OF_SPLIT, Wrapped
from foretell.runtime.assignment import Assignment
from program_cases import load

LLAMA = "llama:layers={layers},hidden=64,heads=8,kv_heads=8,ffn=128,vocab=64,seq=8,dtype=bf16"
PLANS = ("dp16", "dp2 tp8", "dp16:zero3", "dp2:zero3 tp8", "dp16 +recompute:block", "dp2:zero3 tp8 +recompute:block")
CONSTANTS = [field.name for field in msgspec.structs.fields(Wrapped)]
ONLY_PLAIN = msgspec.structs.replace(
    trainer("pytorch"), wrapped=msgspec.structs.replace(trainer("pytorch").wrapped, **dict.fromkeys(CONSTANTS, 0.0))
)


def setting(plan: str, runs: Trainer, layers: int = 2) -> Setting:
    parsed = parse(f"{plan} +bf16")
    return Setting(load(LLAMA.format(layers=layers), 1), Job(batch=parsed.ranks), parsed, runs)


def made(plan: str, runs: Trainer) -> PricedProgram:
    return priced(setting(plan, runs), cluster("16xh100"))


def launches(plan: str, runs: Trainer) -> float:
    """Of both passes of all kinds of layers, and of their units of weights."""
    found = made(plan, runs)
    layers = sum(float(kind.launches[0] + kind.launches[1]) for kind in found.kinds.values())
    return layers + sum(2 * own for cost in found.traffic for own in cost.unit_launches)


def seconds(plan: str, runs: Trainer, layers: int = 2) -> float:
    """Of a step that the host limits: the model is tiny."""
    return predict(setting(plan, runs, layers), cluster("16xh100")).step_seconds


@pytest.mark.parametrize(
    ("plan", "charged"),
    [
        ("dp16", set[str]()),
        ("dp2 tp8", {"product_forward", "product_backward", "message", "update"}),
        ("dp2 tp8:sp", {"product_forward", "product_backward", "norm_forward", "norm_backward", "message", "update"}),
        ("dp16:zero3", {"unit", "unit_tensor", "update"}),
        ("dp16:zero1", set[str]()),
        ("dp16 +recompute:block", {"region"}),
    ],
)
def test_each_constant_is_for_what_it_says(plan: str, charged: set[str]) -> None:
    found = set[str]()
    for name in CONSTANTS:
        wrapped = msgspec.structs.replace(ONLY_PLAIN.wrapped, **{name: 10.0})
        more = msgspec.structs.replace(ONLY_PLAIN, wrapped=wrapped)
        if seconds(plan, more) > seconds(plan, ONLY_PLAIN) * 1.0001:
            found.add(name)
    assert found == charged


def test_a_tensor_parallel_layer_has_seven_split_products() -> None:
    """Query, key, value, output, gate, up, down; the head outside the layers is the eighth."""
    one = msgspec.structs.replace(ONLY_PLAIN.wrapped, product_forward=1.0)
    with_one = launches("dp2 tp8", msgspec.structs.replace(ONLY_PLAIN, wrapped=one))
    assert with_one - launches("dp2 tp8", ONLY_PLAIN) == 8  # kinds of layers are counted once


@given(
    plan=st.sampled_from(PLANS),
    constants=st.fixed_dictionaries({name: st.floats(0, 50) for name in CONSTANTS}),
    raised=st.sampled_from(CONSTANTS),
    more=st.floats(0, 50),
)
def test_more_work_of_the_host_never_takes_less(
    plan: str, constants: dict[str, float], raised: str, more: float
) -> None:
    less = msgspec.structs.replace(ONLY_PLAIN, wrapped=Wrapped(**constants))
    grown = msgspec.structs.replace(ONLY_PLAIN, wrapped=Wrapped(**{**constants, raised: constants[raised] + more}))
    assert launches(plan, grown) >= launches(plan, less) * (1 - 1e-12)
    assert seconds(plan, grown) >= seconds(plan, less) * (1 - 1e-12)


@given(plan=st.sampled_from(PLANS), layers=st.integers(1, 4))
def test_more_modules_never_take_less(plan: str, layers: int) -> None:
    runs = trainer("pytorch")
    assert seconds(plan, runs, layers + 1) > seconds(plan, runs, layers)


@pytest.mark.parametrize("name", ["deepspeed", "megatron-core", "horovod", "nanotron", "maxtext", "internevo", "lbann"])
def test_who_wraps_nothing_is_not_charged(name: str) -> None:
    found = trainer(name)
    assert not found.host.launch or not any(getattr(found.wrapped, constant) for constant in CONSTANTS)


def test_what_was_timed_as_it_is_known_changes_nothing() -> None:
    known, launch = trainer("pytorch").wrapped, 3e-5
    said = {name: takes(known) * launch for name, _, takes in TOLD}
    timed = dict(as_timed(known, lambda name: said[name], launch))
    assert timed == {name: pytest.approx(getattr(known, name)) for name in timed}
    assert set(timed) == set(CONSTANTS) - {"update", "turn", "watched"}


def test_a_host_that_takes_twice_as_long_around_modules_has_twice_the_constants() -> None:
    known, launch = trainer("pytorch").wrapped, 3e-5
    for name, constants, takes in TOLD:
        said = {name: 2 * takes(known) * launch}
        timed = dict(as_timed(known, partial(_said, said), launch))
        assert timed == {constant: pytest.approx(2 * getattr(known, constant)) for constant in constants}


def _said(said: dict[str, float], name: str) -> float:
    return said.get(name, 0.0)


def test_own_appliers_split_layers_without_dtensors() -> None:
    ran = Assignment(model=LLAMA.format(layers=2), plan="dp2 tp8", batch=2, device="cuda").setting.trainer.wrapped
    known = trainer("pytorch").wrapped
    assert {name for name in CONSTANTS if getattr(ran, name) != getattr(known, name)} == {*OF_SPLIT, "update"}
    assert not any(getattr(ran, name) for name in ({*OF_SPLIT} - {"message"}) | {"update"})
    assert 0 < ran.message < known.message


def test_a_snapshot_is_of_its_trainer_of_today() -> None:
    assert of_today("torchtitan-2025") == "torchtitan"
    assert of_today("torchtitan") == "torchtitan"
    assert trainer("torchtitan-2025").attention.kernel == "flash2"
    assert trainer("torchtitan").attention.kernel == trainer("fsdp").attention.kernel == "flash3"
    assert trainer("pytorch").attention.kernel == "flash3"
