"""A fine-tune on few devices: the ladder from all weights to four bits, each rung predicted.

A rung is a plan and an optimizer that files of today's trainers can say. Each is predicted with the largest
micro-batch that fits, or with the smallest where none does. The rung to take is of the first kind that fits, which
departs least from training all weights on the device, and the fastest of that kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.oracle.batch_prober import BatchProber
from foretell.oracle.kept_stacks import measured_on
from foretell.oracle.ladder import usual_precision
from foretell.oracle.padding import with_rows
from foretell.oracle.predict import predict
from foretell.oracle.predicted import predicted
from foretell.oracle.proposals import SHORTEST
from foretell.oracle.request import Request
from foretell.oracle.training import STEP_ALONE
from foretell.plan.text import parse

RANK: Final = 16
"""Of the adapters: what people usually begin with."""

KINDS: Final = ("full", "LoRA", "QLoRA", "shorter sequences", "offload")
"""From what departs least from training all weights on the device. What moves states to the host comes last: it may be
many times slower."""


class TuningRung(msgspec.Struct, frozen=True, kw_only=True):
    """One way to fine-tune."""

    kind: str  # one of KINDS
    what: str
    plan: str
    optimizer: str
    seq: int  # tokens of a sequence
    fits: bool
    batch: int = 0  # samples of a step
    micro_batch: int = 0  # samples that one device takes at a time; 0 where the plan is refused
    memory_bytes: float = 0.0
    usable: float = 0.0
    step_seconds: float = 0.0
    tokens_per_second: float = 0.0  # that are no padding, where lengths of examples are given
    work: float = 0.0  # share of all tokens that are these; 0 where no lengths are given, or it does not fit
    seconds: float = 0.0  # of the whole run; 0 where its length is not given
    cost: float = 0.0  # of it; 0 where no price is given
    why: str = ""  # not: the rule that refuses it


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The ladder."""

    model: str
    cluster: str
    trainer: str
    batch: int  # samples of a step, as asked; 0: not said
    rungs: tuple[TuningRung, ...]
    taken: int  # the number of the rung to take, from 0; -1: nothing fits
    notes: tuple[str, ...]


DEAR: Final = 2.0
"""Times as fast as the way to take, from which on another is told beside it."""


def sentence(found: Tuning, name: str) -> str:
    """Which way to take, and what it costs: what departs least from all weights may be many times slower."""
    if found.taken < 0:
        return f"none of these ways to fine-tune {name} fits {found.cluster}"
    taken = found.rungs[found.taken]
    fastest = max((one for one in found.rungs if one.fits), key=lambda one: one.tokens_per_second)
    times = fastest.tokens_per_second / taken.tokens_per_second
    dear = f"; {fastest.what} is {times:,.2g} times as fast" if times >= DEAR else ""
    return f"{name} on {found.cluster}: take {taken.what}{dear}"


class UntriedRung(NamedTuple):
    """A rung that nobody predicted yet."""

    kind: str
    what: str
    plan: str
    optimizer: str = "adamw"
    seq: int = 0  # 0: as asked


def tuning(request: Request) -> Tuning:
    """The ladder for a model on a cluster; on several devices states lie in shares."""
    request = with_rows(request)
    place = request.place
    asked = BatchProber(request)
    length = asked.facts.sequence
    if not length or asked.fixed:
        raise BadInput(f"{request.model} has no sequences of any length", where="--tuning", fix="a language model")
    rungs = [_climbed(request, one, length) for one in _steps(asked)]
    if asked.cluster.ranks > 1 and not _on_devices(rungs):
        rungs.append(_climbed(request, _in_shares(asked), length))
    shorter = length // 2
    while shorter >= SHORTEST and not _on_devices(rungs):
        rungs.append(_climbed(request, _shorter(asked, shorter), shorter))
        shorter //= 2
    if not any(one.fits for one in rungs):
        rungs.append(_climbed(request, _base_on_host(asked), length))
    rungs.sort(key=lambda one: KINDS.index(one.kind))
    return Tuning(
        model=request.model,
        cluster=place.text,
        trainer=asked.trainer.name,
        batch=request.batch,
        rungs=tuple(rungs),
        taken=_taken(rungs),
        notes=tuple(asked.notes()),
    )


def _on_devices(rungs: list[TuningRung]) -> bool:
    """Whether one fits that moves nothing to the host."""
    return any(one.fits for one in rungs if one.kind != KINDS[-1])


def _taken(rungs: list[TuningRung]) -> int:
    """The first kind that fits, and the fastest of it."""
    fitting = [at for at, one in enumerate(rungs) if one.fits]
    if not fitting:
        return -1
    kind = rungs[fitting[0]].kind
    return max((at for at in fitting if rungs[at].kind == kind), key=lambda at: rungs[at].tokens_per_second)


def _steps(asked: BatchProber) -> Iterator[UntriedRung]:
    """Alone, weights in fp32 run under autocast, as transformers' Trainer has it; in shares, 16 bits are gathered."""
    ranks, half = asked.cluster.ranks, usual_precision(asked.cluster, asked.trainer)
    alone = ranks == 1
    data = "dp1" if alone else f"dp{ranks}:zero3"
    full = f"{data} +amp_{half}" if alone and half in ("bf16", "fp16") else f"{data} +{half}"
    again = "+recompute:block"
    yield UntriedRung("full", "all weights", full)
    yield UntriedRung("full", "all, checkpoints", f"{full} {again}")
    yield UntriedRung("full", "all, 8-bit states", f"{full} {again}", "adamw8bit")
    if half == "bf16":
        yield UntriedRung("full", "all in 16 bits", f"{data} +bf16:pure {again}", "adamw8bit")
    for kind, base in (("LoRA", ""), ("QLoRA", " +nf4")):
        plan = f"{'dp1' if alone else f'dp{ranks}' if base else data} +{half} +lora{RANK} +fp32-adapters{base}"
        yield UntriedRung(kind, kind, plan)
        yield UntriedRung(kind, f"{kind}, checkpoints", f"{plan} {again}")
    yield UntriedRung("offload", "states on the host", f"{full} {again} +offload:optimizer")


def _in_shares(asked: BatchProber) -> UntriedRung:
    """The smallest that stays on the devices: on several, the base in four bits lies in shares."""
    last = [one for one in _steps(asked) if one.kind == "QLoRA"][-1]
    ranks = asked.cluster.ranks
    if ranks == 1:
        return last
    return last._replace(what="QLoRA in shares", plan=last.plan.replace(f"dp{ranks}", f"dp{ranks}:zero3", 1))


def _base_on_host(asked: BatchProber) -> UntriedRung:
    last = _in_shares(asked)
    return last._replace(kind=KINDS[-1], what="QLoRA, base on host", plan=f"{last.plan} +offload:weights")


def _shorter(asked: BatchProber, length: int) -> UntriedRung:
    last = _in_shares(asked)
    return last._replace(kind="shorter sequences", what=f"QLoRA, {length} tokens", seq=length)


def _climbed(request: Request, step: UntriedRung, length: int) -> TuningRung:
    changed = request.changed(optimizer=step.optimizer, seq=step.seq or request.seq)
    climbed = BatchProber(changed).climb(parse(step.plan))
    found = climbed.best
    rung = TuningRung(
        kind=step.kind, what=step.what, plan=step.plan, optimizer=step.optimizer, seq=step.seq or length, fits=False
    )
    if found is None:
        return msgspec.structs.replace(rung, why=climbed.rung.why)
    answer = found.prediction
    run = None
    if answer.fits and request.run.examples is not None:
        run = predicted(changed.changed(plan=found.plan, batch=answer.batch, batch_per_rank=0))[1].training
    elif answer.fits and request.run != STEP_ALONE:
        known = measured_on(found.setting, request.place, request.measured, request.model)
        run = predict(known.setting, known.cluster, request.run).training
    rows = run.examples if run else None
    return msgspec.structs.replace(
        rung,
        plan=str(found.plan),
        fits=answer.fits,
        batch=answer.batch,
        micro_batch=found.micro,
        memory_bytes=answer.memory_bytes,
        usable=answer.usable,
        step_seconds=answer.step_seconds,
        tokens_per_second=rows.tokens_per_second if rows else answer.tokens_per_second,
        work=rows.work if rows else 0.0,
        seconds=run.seconds if run else 0.0,
        cost=run.cost if run else 0.0,
    )
