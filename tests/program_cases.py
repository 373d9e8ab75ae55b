"""Small models under small plans, lowered: what tests of collectives and laws of programs start from."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, TypeAlias

import msgspec

import foretell
from foretell.model.graph import Graph
from foretell.model.operator import NOTHING, OperatorPart
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Allocate, Free
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from foretell.program.program import Program
from foretell.program.rank_program import BlockKind, RankProgram

WIDTH = 4
"""Bytes of an fp32 element: models and plans are in fp32 where a test does not say otherwise."""

Found: TypeAlias = dict[tuple[str, str, str], tuple[float, float]]
"""(kind, axes, what) to how many a step, and the sum of their payloads in bytes."""


@functools.cache
def load(model: str, batch: int) -> Graph:
    return foretell.load(model, batch=batch)


@functools.cache
def program(model: str, plan: str, batch: int, trained_by: str | Trainer = "pytorch") -> ExpandedProgram:
    """The program of a plan, `batch` samples a step over all ranks. These small vocabularies are not padded."""
    parsed = parse(plan)
    graph = load(model, batch // parsed.microbatches)
    chosen = changed(trained_by, "tensor", vocabulary_multiple=0) if isinstance(trained_by, str) else trained_by
    return expand(lower(Setting(graph, Job(batch=batch), parsed, chosen)))


@functools.cache
def lowered(model: str, plan: str) -> Program:
    """The folded program of a plan, one micro-batch of four samples a step."""
    return lower(Setting(load(model, 4), Job(batch=4), parse(plan), trainer("pytorch")))


def left_after_forward(made: RankProgram, kind: BlockKind) -> float:
    """Bytes that a kind of layer leaves for its backward pass."""
    alive: dict[str, float] = {}
    for action in made.bodies.forward(*kind.operators, "").actions:
        if isinstance(action, Allocate):
            alive[action.name] = action.bytes
        elif isinstance(action, Free):
            alive.pop(action.name, None)
    return sum(alive.values())


def changed(name: str, part: str, **constants: Any) -> Trainer:
    """A trainer with some constants of one part replaced."""
    usual = trainer(name)
    return msgspec.structs.replace(usual, **{part: msgspec.structs.replace(getattr(usual, part), **constants)})


def traffic(made: ExpandedProgram, place: int = 0) -> Found:
    """What a rank at this place of the pipeline takes part in."""
    found: Found = {}
    for key, total in made.traffic(made.kinds[place]).items():
        name = (key.kind, "+".join(key.axes), key.what)
        assert name not in found, f"{name} over groups of two sizes"
        found[name] = (total.count, total.payload)
    return found


def sent(made: ExpandedProgram, place: int = 0) -> float:
    """Bytes that a rank sends in a step."""
    return sum(total.sent for total in made.traffic(made.kinds[place]).values())


def one(made: ExpandedProgram, kind: str, path: str) -> tuple[Any, int]:
    """The only communication of a kind at a module, with how often it happens."""
    (found,) = [(m, times) for m, times in made.communications(made.kinds[0]) if (m.kind, m.path) == (kind, path)]
    return found


def work(made: ExpandedProgram, place: int = 0, again: bool | None = None) -> OperatorPart:
    """What one rank computes in a step; only what runs a second time, or only the rest, if asked."""
    total = NOTHING
    for action, times in made.computations(made.kinds[place]):
        if again in (None, action.again):
            total = total + action.cost * times
    return total


def matrix_flops(made: ExpandedProgram) -> float:
    """Matrix flops of all ranks together."""
    return sum(work(made, place).matrix * kind.ranks for place, kind in enumerate(made.kinds))


class Decoder(NamedTuple):
    """Sizes of a Llama, and what follows from them by hand. Elements, not bytes."""

    layers: int = 3
    hidden: int = 64
    heads: int = 8
    kv_heads: int = 8
    head_dim: int = 16
    ffn: int = 192
    vocab: int = 640
    seq: int = 32
    dtype: str = "fp32"
    tied: str = "false"

    @property
    def model(self) -> str:
        return "llama:" + ",".join(f"{name}={value}" for name, value in self._asdict().items())

    @property
    def norms(self) -> int:
        """RMS norms have one weight a feature: two in a layer, one at the end."""
        return (2 * self.layers + 1) * self.hidden

    @property
    def layer(self) -> int:
        """Weights of one layer: query and output, key and value, gate, up and down, two norms."""
        attention = 2 * self.hidden * self.heads * self.head_dim + 2 * self.hidden * self.kv_heads * self.head_dim
        return attention + 3 * self.hidden * self.ffn + 2 * self.hidden

    @property
    def table(self) -> int:
        return self.vocab * self.hidden

    @property
    def root(self) -> int:
        """Weights in no layer: token table, last norm, head."""
        return (1 if self.tied == "true" else 2) * self.table + self.hidden

    @property
    def weights(self) -> int:
        return self.layers * self.layer + self.root

    def hidden_states(self, batch: int) -> int:
        """b s h, the tensor between layers."""
        return batch * self.seq * self.hidden


class Mixture(NamedTuple):
    """Sizes of a mixture of experts on the same frame."""

    layers: int = 2
    hidden: int = 64
    heads: int = 8
    kv_heads: int = 8
    head_dim: int = 16
    ffn: int = 48
    vocab: int = 640
    seq: int = 32
    experts: int = 8
    top_k: int = 2

    @property
    def model(self) -> str:
        return "mixture:" + ",".join(f"{name}={value}" for name, value in self._asdict().items())

    @property
    def expert_weights(self) -> int:
        """Gate, up and down of all experts of all layers."""
        return self.layers * self.experts * 3 * self.hidden * self.ffn

    @property
    def other_weights(self) -> int:
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        router = self.hidden * self.experts
        return self.layers * (attention + router + 2 * self.hidden) + 2 * self.vocab * self.hidden + self.hidden

    def rows(self, batch: int) -> int:
        """What goes to the experts: every token top_k times."""
        return batch * self.seq * self.top_k * self.hidden


class Dense(NamedTuple):
    """One layer of a small convolutional net, with sizes of one sample."""

    x: int
    y: int
    w: int
    b: int


LENET = (
    Dense(1 * 32 * 32, 6 * 28 * 28, 6 * 1 * 25, 6),
    Dense(6 * 14 * 14, 16 * 10 * 10, 16 * 6 * 25, 16),
    Dense(400, 120, 400 * 120, 120),
    Dense(120, 84, 120 * 84, 84),
    Dense(84, 10, 84 * 10, 10),
)
"""LeCun et al. 1998: two convolutions of 5x5, each pooled 2x2, and three dense layers."""

VGG = "vgg11:image=64,classes=16"
"""Convolutions of 3x3 with a border of one: at 64, 32, 16 (twice), 8 and 4 pixels; pooled 2x2 after each size."""
