# pyright: basic
"""Pipeline parallelism over stages that are cut as the program cuts them: torch.distributed.pipelining, or passes in an
order of our own where torch has none that runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.nn.parallel import DistributedDataParallel

from foretell.plan.policies.compression import Compression
from foretell.plan.schedule import find
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.program.partition import pipeline_partition
from foretell.program.weights import shared_between_blocks
from foretell.runtime import stages
from foretell.runtime.appliers._half_passes import gather_for_half
from foretell.runtime.appliers._line import Like, like, several
from foretell.runtime.appliers._played import PlayedPipeline
from foretell.runtime.appliers._stash import Stashed
from foretell.runtime.appliers._tied import keep_alike, tied
from foretell.runtime.appliers.precision import casting
from foretell.runtime.clock import Clock
from foretell.runtime.stages import on_shapes
from foretell.runtime.subject import Subject
from foretell.runtime.tasks import Batch

ORDER = 10

SCHEDULES: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zb-h1": ScheduleInterleavedZeroBubble,
}
"""Those of torch."""

PLAYED = ("zb-v", "dualpipe-v", "dualpipe")
"""Orders that are played slot by slot. Of the first two torch has its own, which break off between gloo ranks in torch
2.11 and divide the gradient of a weight twice that two stages of a rank have; of the last it has none."""

STASH = "stash"
"""The schedule that never runs empty: torch has none."""

SPLIT = tuple(name for name in (*SCHEDULES, *PLAYED) if find(name).splits_backward)
"""Schedules that make gradients of weights apart from those of inputs. DistributedDataParallel does not sum the former
(torch 2.13: trained values were wrong in the third digit). So they are averaged after the last pass."""


def refusals(part: Pipeline, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.schedule == STASH:
        yield from _stash_refusals(part, setting)
    elif part.schedule not in (*SCHEDULES, *PLAYED):
        why = f"pp{part.ranks}:{part.schedule} does not run yet"
        yield why, " or ".join(f"pp{part.ranks}:{name}" for name in (*SCHEDULES, *PLAYED, STASH))
    late = _tokens_read_late(part, setting)
    if late:
        why = f"pp{part.ranks}: {late} reads tokens on a later stage, and numbers that no gradient goes back for"
        yield f"{why} do not travel yet", "dp, or a model without that layer (mtp=0)"
    data = setting.plan.axis(Data)
    in_shares = data is not None and data.world > 1 and data.storage in ("zero2", "zero3")
    if data is not None and in_shares and part.schedule in PLAYED and shared_between_blocks(setting.graph):
        why = f"pp{part.ranks}:{part.schedule} beside {data.storage}: a rank has a weight in two stages"
        yield f"{why}, and FSDP2 would share it out twice", f"dp:zero1, tied=false, or pp{part.ranks}:1f1b"
    method = setting.plan.policy(Compression).method
    if method != "none" and part.schedule in (*SPLIT, STASH):
        why = f"+compress:{method} beside pp{part.ranks}:{part.schedule} does not run: there are no buckets there"
        yield why, f"pp{part.ranks}:1f1b"


def _tokens_read_late(part: Pipeline, setting: Setting) -> str:
    """The first layer behind the first stage that looks tokens up; none where there is none."""
    found = pipeline_partition(setting.graph, part, setting.trainer.pipeline.split)
    later = (piece for own in found.row.parts[1:] for piece in own if piece.layer)
    nodes = ((piece.layer, setting.graph.blocks[piece.block].nodes[piece.start : piece.stop]) for piece in later)
    return next((layer for layer, own in nodes if any(node.kind == "embedding" for node in own)), "")


def _stash_refusals(part: Pipeline, setting: Setting) -> Iterator[tuple[str, str]]:
    data = setting.plan.axis(Data)
    if data is not None and data.world > 1 and data.storage in ("zero2", "zero3"):
        why = f"pp{part.ranks}:{STASH} beside {data.storage} does not run: FSDP2 keeps one version of the weights"
        yield why, "dp, or dp:zero1"
    if shared_between_blocks(setting.graph):
        yield f"pp{part.ranks}:{STASH} with a weight that two of its stages have does not run", "tied=false"


def apply(part: Pipeline, subject: Subject) -> None:
    """Keep this rank's stages of the model."""
    found = pipeline_partition(subject.setting.graph, part, subject.setting.trainer.pipeline.split)
    (module,) = subject.parts
    names = [frozenset(piece.layer for piece in own if piece.layer) for own in found.row.parts]
    shared = tied(module)
    cut = stages.cut(module, subject.setting.graph, names, subject.sample)
    own = [at for at in range(found.count) if found.rank[at] == subject.mesh.place("pp")]
    subject.parts = [cut[found.part[at]] for at in own]
    places = [[rank for rank, part in zip(found.rank, found.part, strict=True) if part == at] for at in range(len(cut))]
    keep_alike(subject, cut, places, shared)
    if part.schedule == STASH:
        subject.later = True  # with every update
        subject.driver = Stashed
        return
    likes = _entering(subject, cut) if subject.rehearsed else []  # torch's stages would ask each other
    played = part.schedule in PLAYED or found.schedule.forward  # torch's schedules come back
    if played or (likes and subject.later):  # in a dry run, which has shapes and no numbers
        subject.later = True
        entering = {at: likes[found.part[at]] for at in own} if likes else None
        subject.driver = functools.partial(PlayedPipeline, part=part, own=own, entering=entering)
    else:
        if part.schedule in SPLIT:
            subject.later = True
            for stage in subject.parts:
                stage.forward = functools.partial(_no_view, stage.forward)
        known = [(likes[found.part[at]], likes[found.part[at] + 1]) for at in own] if likes else None
        subject.driver = functools.partial(Scheduled, part=part, own=own, count=found.count, known=known)


def _entering(subject: Subject, cut: Sequence[nn.Module]) -> list[list[Like]]:
    """What each stage reads, and what the last one makes, found by going through all of them; later, ranks of `tp:sp`
    have shares of sequences."""
    tensor = subject.setting.plan.axis(Tensor)
    ways = tensor.ranks if tensor is not None and tensor.sequence else 1
    found: list[list[Like]] = []
    aside = nullcontext() if subject.later else FakeTensorMode(allow_non_fake_inputs=True)
    with aside, on_shapes(nn.ModuleList(cut), subject.sample.inputs) as values, casting(subject):
        for stage in cut:
            found.append([_shared(like(value), ways) for value in values])
            values = several(stage(*values))
        found.append([like(value) for value in values])
    return found


def _shared(whole: Like, ways: int) -> Like:
    """A share of the sequence of activations [sample, sequence, hidden]."""
    if not whole.trained or ways == 1:
        return whole
    samples, places, *rest = whole.shape
    return whole._replace(shape=(samples, places // ways, *rest))


def _no_view(inner: Callable[..., Any], *inputs: Any) -> Any:
    """What a stage makes, in memory of its own: a split backward pass lets go of it in place, which views forbid."""
    made = inner(*inputs)
    if isinstance(made, tuple):
        return tuple(one.clone() if one._is_view() else one for one in made)
    return made.clone() if made._is_view() else made


Known = list[tuple[list[Like], list[Like]]]
"""What each stage of a rank reads and makes."""


def _shapes(reads: list[Like], makes: list[Like]) -> dict[str, Any]:
    """What a stage of torch's is told of its values where it cannot ask its neighbours."""
    nowhere = torch.device("meta")
    read, made = (tuple(one.empty(nowhere).requires_grad_(one.trained) for one in side) for side in (reads, makes))
    return {"input_args": read, "output_args": made}


class Scheduled:
    """Micro-batches through this rank's stages in the order of a schedule."""

    def __init__(
        self, subject: Subject, part: Pipeline, own: list[int], count: int, known: Known | None = None
    ) -> None:
        group = subject.mesh.group("pp")
        self.first, self.last = 0 in own, count - 1 in own
        shapes = [_shapes(*one) for one in known] if known else [{}] * len(own)
        self.stages = [
            _TimedStage(module, at, count, subject.device, group, more)
            for at, module, more in zip(own, subject.parts, shapes, strict=True)
        ]
        for stage, told in zip(self.stages, subject.summed, strict=False):
            stage.summed = told
        several = len(own) > 1 or part.schedule == "zb-h1"
        self.schedule = SCHEDULES[part.schedule](
            self.stages if several else self.stages[0], subject.setting.plan.microbatches, loss_fn=subject.loss
        )

    def run(self, batch: Batch, clock: Clock) -> list[torch.Tensor]:
        for stage in self.stages:
            stage.clock = clock
        losses: list[torch.Tensor] = []
        inputs = batch.inputs if self.first else ()
        more = {"target": batch.target, "losses": losses} if self.last else {}
        with clock.between_phases("bubble"):  # without outputs: the last stage would keep those of every micro-batch
            self.schedule.step(*inputs, return_outputs=False, **more)
        return [loss.detach() for loss in losses]


class _TimedStage(PipelineStage):
    """A stage whose passes are told to the clock; what is left of a step is waiting: for others, and for messages."""

    clock: Clock
    summed: Callable[[Clock], None] = staticmethod(lambda clock: None)

    def __init__(
        self, module: nn.Module, at: int, count: int, device: torch.device, group: Any, shapes: Mapping[str, Any]
    ) -> None:
        super().__init__(module, at, count, device, group=group, **shapes)
        if isinstance(module, DistributedDataParallel):
            # The pipeline wakes it up for the last backward pass, but not before it has tried a forward pass to learn
            # shapes: the gradients of the first micro-batches would then be taken for those of a step.
            module.require_backward_grad_sync = False

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.phase("forward"):
            return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.phase("backward"):
            if not kwargs.get("full_backward", True):
                gather_for_half(self.submod)
            result = super().backward_one_chunk(*args, **kwargs)
            if kwargs.get("last_backward"):
                self.summed(self.clock)
            return result

    def backward_weight_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.phase("backward"):
            gather_for_half(self.submod)
            return super().backward_weight_one_chunk(*args, **kwargs)
