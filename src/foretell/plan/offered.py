"""What a trainer runs at all, and what the search offers of it: what its own configuration can say.

A trainer's code may do more than its configuration can ask for, and a plan that is typed is predicted all the same.
What `plan` recommends, somebody wants to run: it must be possible to write it down for that trainer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from foretell.plan.plan import Plan, axis_text, policy_text
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor

StorageWord: TypeAlias = Literal["zero1", "zero2", "zero3"]
Exchange: TypeAlias = Literal["ring", "alltoall"]
OffloadWords: TypeAlias = Literal["any", "optimizer", "optimizer+weights"]

RULE: Final = "trainer's configuration"


class Legal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the trainer runs at all."""

    strategies: tuple[str, ...]  # words of the axes; `any` for all that there are, here and below
    sequence_parallel: Literal["never", "optional", "always"]
    context: tuple[Exchange, ...]
    experts: bool
    a2a_overlap: bool  # rows of experts beside a pass of another micro-batch
    storages: tuple[StorageWord, ...]
    storages_pipeline: tuple[StorageWord, ...]  # those that go with more than one stage
    hybrid: bool  # shares among groups of the data ranks
    tensor_in_node: bool
    heads_divide: bool  # tensor ranks must divide the heads
    layers_divide: bool  # stages must divide the layers
    vocabulary_divide: bool  # tensor ranks must divide the vocabulary
    empty_stages: bool  # whether a stage may have no layer
    uneven_stages: bool  # whether a plan may say the layers of each stage
    precisions: tuple[str, ...]


class Offered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the configuration of a trainer can say; `any` stands for all that there is."""

    schedules: tuple[str, ...]
    context: tuple[Exchange, ...]
    hybrid: tuple[StorageWord, ...]  # storages whose shares may be among groups of the data ranks
    whole_context: bool  # context ranks that all have whole weights
    experts: Literal["never", "whole", "any"]  # divided; `whole`: no tensor ranks share one
    recompute: tuple[str, ...]  # `every`, `first`, `nth` for any number of blocks
    offload: tuple[OffloadWords, ...]
    virtual_stages: tuple[str, ...]  # numbers of stages of a rank that it says without the layers of each
    splits: bool  # the layers of each stage


def cannot_say(offered: Offered, plan: Plan) -> Iterator[Refusal]:
    """What of a plan the configuration has no word for."""
    yield from cannot_say_axes(offered, plan)
    pipeline = plan.axis(Pipeline)
    if pipeline is not None and pipeline.ranks > 1:
        yield from cannot_say_pipeline(offered, pipeline)
    yield from cannot_say_policies(offered, plan.policies)


def says_less(offered: Offered, plan: Plan, than: Plan) -> bool:
    """Whether a plan has something that the configuration cannot say, and another one, such as a typed one, has not."""
    known = {refusal.why for refusal in cannot_say(offered, than)}
    return any(refusal.why not in known for refusal in cannot_say(offered, plan))


def cannot_say_axes(offered: Offered, plan: Plan) -> Iterator[Refusal]:
    """The same of its axes, whatever a pipeline does with its ranks."""
    context, data = plan.axis(Context), plan.axis(Data)
    if context is not None and context.ranks > 1 and context.exchange not in offered.context:
        yield _unsaid(f"{axis_text(context)}: the exchange {context.exchange}")
    whole = data is None or data.storage == "replicated"
    if context is not None and context.ranks > 1 and whole and not offered.whole_context:
        yield _unsaid(f"{axis_text(context)}: context ranks with whole weights")
    if data is not None and data.shard > 1 and data.storage not in offered.hybrid:
        yield _unsaid(f"{axis_text(data)}: shares among groups of {data.shard} data ranks")
    if data is not None and data.experts > 1:
        yield from _experts(offered, plan, data)


def _experts(offered: Offered, plan: Plan, data: Data) -> Iterator[Refusal]:
    tensor = plan.axis(Tensor)
    ranks = tensor.ranks if tensor else 1
    if offered.experts == "never":
        yield _unsaid(f"{axis_text(data)}: experts that are divided")
    elif offered.experts == "whole" and ranks > 1 and data.expert_tensor != 1:
        yield _unsaid(f"{axis_text(data)}: experts that {ranks} tensor ranks share")


def cannot_say_pipeline(offered: Offered, pipeline: Pipeline) -> Iterator[Refusal]:
    """The same of a pipeline."""
    if not _has(offered.schedules, pipeline.schedule):
        yield _unsaid(f"{axis_text(pipeline)}: the schedule {pipeline.schedule}")
    if pipeline.split and not offered.splits:
        yield _unsaid(f"{axis_text(pipeline)}: the layers of each stage")


def says_number(offered: Offered, pipeline: Pipeline) -> bool:
    """Whether the number of stages of a rank can be said without the layers of each, whatever the model."""
    return not pipeline.chunks or _has(offered.virtual_stages, str(pipeline.chunks))


def cannot_say_policies(offered: Offered, policies: Iterable[Policy]) -> Iterator[Refusal]:
    """The same of policies."""
    for policy in policies:
        if isinstance(policy, Recompute) and policy != Recompute():
            words = (policy.numbered,) if policy.numbered else policy.granularity.split(",")
            said = all(_has(offered.recompute, word) for word in words)
        else:
            said = not isinstance(policy, Offload) or not policy.moved or _has(offered.offload, "+".join(policy.moved))
        if not said:
            yield _unsaid(policy_text(policy))


def _has(words: tuple[str, ...], word: str) -> bool:
    return word in words or "any" in words


def _unsaid(what: str) -> Refusal:
    return Refusal(RULE, f"{what} is nothing that its configuration can say")
