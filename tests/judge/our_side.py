"""Foretell's side of the comparison: the program of the plan that a case stands for, in torch's words."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from foretell.model import zoo
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, trainer
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from judge.cases import Case

HALF = "bf16"


def program(case: Case) -> ExpandedProgram:
    """What foretell makes of a case."""
    batch = case.batch * case.replicate * case.shard
    return expand(lower(Setting(zoo.load(_model(case), batch), Job(batch=batch), parse(plan(case)), _trainer(case))))


def plan(case: Case) -> str:
    """The case as a plan: FSDP2 is zero3, over two axes with groups of `shard` ranks."""
    data = f"dp{case.replicate}:zero3,shard{case.shard}" if case.replicate > 1 else f"dp{case.shard}:zero3"
    tensor = f"tp{case.tensor}{':sp' if case.sequence else ''}"
    axes = [data] * (case.shard > 1) + [tensor] * (case.tensor > 1)
    return " ".join([*axes, f"+{_dtype(case)}"])


def _dtype(case: Case) -> str:
    """The type that layers compute in: FSDP2 casts what it gathers, and what goes into the layers."""
    _, fields = zoo.parse(case.model)
    return (case.compute if case.shard > 1 else "") or fields.dtype


def _model(case: Case) -> str:
    return f"{case.model},dtype={_dtype(case)}" if "dtype=" not in case.model else _cast(case.model, _dtype(case))


def _cast(model: str, dtype: str) -> str:
    family, _, fields = model.partition(":")
    kept = [field for field in fields.split(",") if not field.startswith("dtype=")]
    return f"{family}:{','.join([*kept, f'dtype={dtype}'])}"


def _trainer(case: Case) -> Trainer:
    """FSDP2 with this case's choices."""
    usual = trainer("fsdp")
    wide = 4 if _dtype(case) == "fp32" or case.reduce == "fp32" else 2
    replace = msgspec.structs.replace
    return replace(
        usual,
        tensor=replace(
            usual.tensor,
            reduce="tensor" if case.shared_input else "consumer",
            loss="shares" if case.logits == "parallel" else "gathered",
        ),
        storage=replace(usual.storage, gathered=2 if _dtype(case) == HALF else 4, reshard_forward=case.reshard),
        gradients=replace(usual.gradients, wire=wide),
    )


class Payloads(NamedTuple):
    """Collectives by kind, axis and payload, and the bytes of those that were left out of the count."""

    counted: dict[tuple[str, str, int], int]
    besides: int


def payloads(case: Case, apart: str = "") -> Payloads:
    """What one rank takes part in; of what is called `apart` only the bytes."""
    found: Counter[tuple[str, str, int]] = Counter()
    made = program(case)
    besides = 0
    names = {"dp": "replicate" if case.replicate > 1 else "shard", "shard": "shard", "tp": "tensor"}
    for message, times in made.communications(made.kinds[0]):
        if message.what == apart:
            besides += round(message.payload) * times
            continue
        axis = "+".join(names[axis] for axis in message.axes)
        found[message.kind, axis, round(message.payload)] += times
    return Payloads(dict(found), besides)
