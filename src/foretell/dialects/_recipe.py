"""What a configuration and a plan have in common: the figures of a run, one by one.

Plan and job go apart into a recipe, and a recipe goes together into both again. A dialect is a table from
these figures to the keys of its files; it never sees a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from foretell.dialects._model import Shape
from foretell.errors import BadInput
from foretell.plan.dispatch import USUAL
from foretell.plan.plan import Plan, axis_text, policy_text
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.base import Base
from foretell.plan.policies.bucket import Bucket
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.loss import Loss
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.overlap import Overlap
from foretell.plan.policies.partitioned import Partitioned
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policies.targets import Targets
from foretell.plan.policies.train import Train
from foretell.plan.policies.variant import Variant
from foretell.plan.policies.wide_adapters import WideAdapters
from foretell.plan.policy import Policy
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import spelled_list

ORDER: Final = ("pp", "dp", "cp", "tp")
"""Axes from the outermost to the innermost, as all trainers here lay ranks out unless told otherwise."""

HINTS: Final = (
    "wide_adapters",
    "overlap",
    "bucket",
    "execution",
    "optimizer",
    "sequence",
    "model",
    "shape",
    "per_node",
)
"""Figures that a run has anyway: where a file does not say them, the plan is still the same plan."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run. Those of an axis with one rank have their defaults, so equal runs are equal values."""

    data: int = 1  # ranks that take samples of their own
    storage: str = "replicated"  # among data and context ranks
    shard: int = 0  # ranks of a group among which states lie in shares; 0: all of them
    experts: int = 1
    expert_tensor: int = 0  # ranks that share one expert; 0: as the tensor axis
    dispatch: str = ""  # how rows reach experts; empty: as the trainer does
    tensor: int = 1
    sequence_parallel: bool = False
    context: int = 1
    exchange: str = "ring"
    pipeline: int = 1
    schedule: str = "1f1b"
    chunks: int = 0
    split: tuple[int, ...] = ()
    order: tuple[str, ...] = ORDER  # of all four axes, those with one rank where they usually are
    microbatches: int = 1
    micro_batch: int = 1  # samples that one rank takes at a time
    sequence: int = 0  # tokens; 0: the model's own
    precision: str = "fp32"
    adapter: int = 0  # rank of the matrices beside frozen weights; 0: the weights are trained
    adapted: tuple[str, ...] = ()  # where adapters stand; nothing: beside all dense layers
    base: str = ""  # the form of frozen weights; empty: as the precision says
    wide_adapters: bool = False  # whether adapters are in fp32 beside 16-bit weights
    variant: tuple[str, ...] = ()  # dora, rslora
    last: int = 0  # layers at the end that are trained while all others are frozen; 0: all are
    task: str = ""  # a method after pre-training, `foretell align`'s word; empty: on the next token
    answers: int = 0  # to each prompt, where the task writes them; the batch then counts answers
    recompute: str = "none"  # or attention, block, full, every2, first4, ...
    partitioned: bool = False  # whether the inputs of layers that run again are saved in shares among tensor ranks
    offload: tuple[str, ...] = ()
    overlap: str = "trainer"
    a2a_overlap: bool = False  # whether rows of experts travel beside a pass of another micro-batch
    bucket: int = 0  # bytes; 0: the trainer's
    execution: str = "trainer"
    loss: str = ""  # how logits and their loss are made; empty: as the trainer does
    optimizer: str = "adamw"
    per_node: int = 8  # ranks of a node, for the launcher
    model: str = ""  # as a person types it; empty: unknown
    shape: Shape | None = None  # its sizes, where it is one that configurations describe
    others: tuple[str, ...] = ()  # axes and policies that no dialect has a word for

    def __post_init__(self) -> None:
        if self.data * self.context == 1:
            self._set(storage="replicated")
        if self.storage == "replicated" or self.shard == self.data:
            self._set(shard=0)
        if self.experts == 1 or self.expert_tensor == self.tensor:
            self._set(expert_tensor=0)
        if self.experts == 1 or self.dispatch == USUAL:
            self._set(dispatch="")
        if not self.adapter:
            self._set(adapted=(), base="", wide_adapters=False, variant=())
        if self.tensor == 1:
            self._set(sequence_parallel=False)
        if self.context == 1:
            self._set(exchange="ring")
        if self.pipeline == 1:
            self._set(schedule="1f1b", chunks=0, split=())
        self._set(order=_usual(self.order, self._sizes()))

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            msgspec.structs.force_setattr(self, name, value)

    def _sizes(self) -> dict[str, int]:
        return {"pp": self.pipeline, "dp": self.data, "cp": self.context, "tp": self.tensor}

    @property
    def batch(self) -> int:
        """Samples of a step, of all ranks together."""
        return self.data * self.microbatches * self.micro_batch

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.context * self.pipeline

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.per_node)

    @property
    def on_node(self) -> int:
        """Ranks that one node starts."""
        return min(self.ranks, self.per_node)

    @property
    def replicas(self) -> int:
        """How often the states are there: once, once for each group of shares, or on every data rank."""
        if self.storage == "replicated":
            return self.data
        return self.data // (self.shard or self.data)


def _usual(order: Iterable[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """An order of axes, those with one rank put where they usually are: where they stand means nothing."""
    said = [word for word in order if sizes[word] > 1]
    usual = [word for word in ORDER if sizes[word] > 1]
    place = dict(zip(usual, said, strict=True))
    return tuple(place.get(word, word) for word in ORDER)


# --- a plan, taken apart ------------------------------------------------------------------------


def taken_apart(plan: Plan, *, batch: int, **about: Any) -> Recipe:
    """The figures of a plan that trains on `batch` samples a step; `about` are those that a plan does not say."""
    fields: dict[str, Any] = {}
    others: list[str] = []
    for axis in plan.axes:
        if isinstance(axis, Data | Tensor | Context | Pipeline):
            fields |= _axis_figures(axis)
            others += [f"shares={spelled_list(axis.shares)}"] if isinstance(axis, Data) and axis.shares else []
        elif axis.world > 1:
            others.append(axis_text(axis))
    for policy in plan.policies:
        found = _policy_figures(policy)
        fields |= found
        others += [] if found else [policy_text(policy)]
    ranks = fields.get("data", 1) * fields.get("microbatches", 1)
    order = [axis.word for axis in plan.axes if axis.word in ORDER]
    order += [word for word in ORDER if word not in order]
    sizes = {"pp": fields.get("pipeline", 1), "dp": fields.get("data", 1)}
    sizes |= {"cp": fields.get("context", 1), "tp": fields.get("tensor", 1)}
    if batch % ranks:
        raise BadInput(f"a batch of {batch} is not a multiple of {ranks} shares", where="--batch", fix=f"{ranks}")
    return Recipe(
        **fields,
        order=_usual(order, sizes),
        micro_batch=batch // ranks,
        others=tuple(others),
        **about,
    )


def _axis_figures(axis: Data | Tensor | Context | Pipeline) -> dict[str, Any]:
    if isinstance(axis, Data):
        return {
            "data": axis.world,
            "storage": axis.storage,
            "shard": axis.shard,
            "experts": axis.experts,
            "expert_tensor": axis.expert_tensor,
            "dispatch": axis.dispatch,
        }
    if isinstance(axis, Tensor):
        return {"tensor": axis.ranks, "sequence_parallel": axis.sequence}
    if isinstance(axis, Context):
        return {"context": axis.ranks, "exchange": axis.exchange}
    return {"pipeline": axis.ranks, "schedule": axis.schedule, "chunks": axis.chunks, "split": axis.split}


def _policy_figures(policy: Policy) -> dict[str, Any]:
    """What a policy says; nothing where no dialect has a word for it."""
    match policy:
        case Microbatches():
            return {"microbatches": policy.count}
        case Precision():
            return {"precision": policy.name or "fp32"}
        case Lora():
            return {"adapter": policy.rank}
        case Targets():
            return {"adapted": policy.where}
        case Base():
            return {"base": policy.form}
        case WideAdapters():
            return {"wide_adapters": policy.wide}
        case Variant():
            return {"variant": policy.how}
        case Train(parts=()):
            return {"last": policy.last}
        case Recompute():
            return {"recompute": policy.option}
        case Partitioned():
            return {"partitioned": policy.on}
        case Offload():
            return {"offload": policy.moved}
        case Overlap():
            return {"overlap": policy.when}
        case A2AOverlap():
            return {"a2a_overlap": policy.on}
        case Bucket():
            return {"bucket": policy.size}
        case Execution():
            return {"execution": policy.mode}
        case Loss():
            return {"loss": policy.form}
        case _:
            return {}


# --- and put together ---------------------------------------------------------------------------


def put_together(recipe: Recipe) -> Plan:
    """The plan that these figures are of."""
    axes: dict[str, Strategy] = {
        "pp": Pipeline(
            ranks=recipe.pipeline, schedule=recipe.schedule, chunks=recipe.chunks, split=recipe.split
        ),
        "dp": _data(recipe),
        "cp": Context(ranks=recipe.context, exchange=recipe.exchange),
        "tp": Tensor(ranks=recipe.tensor, sequence=recipe.sequence_parallel),
    }  # fmt: skip
    policies: tuple[Policy, ...] = (
        Microbatches(count=recipe.microbatches),
        Precision(name=recipe.precision),
        Lora(rank=recipe.adapter),
        Targets(where=recipe.adapted),
        Base(form=recipe.base),
        WideAdapters(wide=recipe.wide_adapters),
        Variant(how=recipe.variant),
        Train(last=recipe.last),
        Recompute.of_option(recipe.recompute),
        Partitioned(on=recipe.partitioned),
        Offload(moved=recipe.offload),
        Overlap(when=recipe.overlap),
        A2AOverlap(on=recipe.a2a_overlap),
        Bucket(size=recipe.bucket),
        Execution(mode=recipe.execution),
        Loss(form=recipe.loss),
    )
    alone = recipe.experts > 1 or recipe.storage != "replicated"  # of one data rank: with context ranks
    wide = {word for word, axis in axes.items() if axis.world > 1 or (word == "dp" and alone)}
    return Plan(tuple(axes[word] for word in recipe.order if word in wide), policies)


def _data(recipe: Recipe) -> Data:
    shard = recipe.shard
    return Data(
        ranks=recipe.data // (shard or 1),
        storage=recipe.storage,
        shard=shard,
        experts=recipe.experts,
        expert_tensor=recipe.expert_tensor,
        dispatch=recipe.dispatch,
    )
