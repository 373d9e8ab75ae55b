"""AmoebaNet-D, found by evolution: cells of ten small operations, each of which sees the two cells before it.

As torchgpipe has it, whose published runs are of it: normal cells give out four states (the paper says three; with four
the sizes are those that GPipe prints), and its pools of 3x3 are averages.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family
from foretell.model.operators.convolution import convolution
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import concatenate, pad, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import pool
from foretell.model.zoo import _task as task

HALVED: Final = 32


class CellStep(NamedTuple):
    """One operation of a cell: which state it sees, and what it does."""

    state: int
    word: str


class CellPlan(NamedTuple):
    """Ten operations, whose results are added in pairs; and the states that are laid side by side."""

    steps: tuple[CellStep, ...]
    given: tuple[int, ...]


def _plan(given: tuple[int, ...], *steps: tuple[int, str]) -> CellPlan:
    return CellPlan(tuple(CellStep(*step) for step in steps), given)


NORMAL: Final = _plan(
    (0, 3, 4, 6),
    (1, "1x1"), (1, "average"), (1, "same"), (0, "1x7"), (0, "1x1"),
    (0, "1x7"), (2, "average"), (2, "same"), (1, "average"), (5, "1x1"),
)  # fmt: skip
REDUCTION: Final = _plan(
    (4, 5, 6),
    (0, "maximum"), (0, "average"), (2, "same"), (1, "3x3"), (2, "1x7"),
    (2, "average"), (3, "same"), (1, "maximum"), (2, "average"), (3, "1x1"),
)  # fmt: skip


class CellShape(NamedTuple):
    """A cell as it stands in the net."""

    before: int  # channels of the cell before the last one
    last: int
    channels: int
    reduces: bool
    after_reduction: bool

    @property
    def plan(self) -> CellPlan:
        return REDUCTION if self.reduces else NORMAL

    @property
    def width(self) -> int:
        return self.channels * len(self.plan.given)


class CellConvolution(NamedTuple):
    """A ReLU, a convolution without bias that keeps the image's size but for its stride, and its norm."""

    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)

    @property
    def padding(self) -> tuple[int, int]:
        return self.kernel[0] // 2, self.kernel[1] // 2


def convolutions(word: str, channels: int, stride: int) -> tuple[CellConvolution, ...]:
    """What an operation of a cell is made of, where it is convolutions."""
    if word == "1x1":
        return (CellConvolution(channels, (1, 1), (stride, stride)),)
    quarter = channels // 4
    if word == "3x3":
        return (
            CellConvolution(quarter, (1, 1)),
            CellConvolution(quarter, (3, 3), (stride, stride)),
            CellConvolution(channels, (1, 1)),
        )
    flat, tall = CellConvolution(quarter, (1, 7), (1, stride)), CellConvolution(quarter, (7, 1), (stride, 1))
    return CellConvolution(quarter, (1, 1)), flat, tall, CellConvolution(channels, (1, 1))


class Amoebanet(Family, frozen=True, kw_only=True):
    """Three parts of `repeats` normal cells, cells that halve the image between; they begin with a fourth of `filters`.

    AmoebaNet-D (18, 256) of the papers has 18 normal cells in all, `repeats` of 6, and 256 filters.
    """

    references: ClassVar[tuple[str, ...]] = (
        "Real, Aggarwal, Huang, Le 2019, arXiv 1802.01548",
        "Huang et al. 2019, arXiv 1811.06965 (GPipe), table 1: sizes",
        "Kim et al. 2020, arXiv 2004.09910 (torchgpipe)",
    )

    repeats: Count = 6
    filters: Count = 256
    image: Count = 224
    classes: Count = 1000

    def check(self) -> None:
        if self.filters % 16:
            raise BadInput(f"filters={self.filters}", fix=f"a multiple of 16: filters={-(-self.filters // 16) * 16}")
        if self.image % HALVED:
            nearest = max(HALVED, round(self.image / HALVED) * HALVED)
            raise BadInput(f"image={self.image} cannot be halved five times", fix=f"image={nearest}")

    @property
    def cells(self) -> dict[str, CellShape]:
        """Every cell by its name, in running order."""
        found: dict[str, CellShape] = {}
        before = last = channels = self.filters // 4
        after = False
        names = ["stem2", "stem3"]
        for part in (1, 3, 5):
            names += [f"cell{part}_normal{at + 1}" for at in range(self.repeats)]
            names += [f"cell{part + 1}_reduction"] if part < 5 else []
        for name in names:
            reduces = "normal" not in name
            channels *= 2 if reduces else 1
            cell = CellShape(before, last, channels, reduces, after)
            found[name] = cell
            before, last, after = last, cell.width, reduces
        return found

    def build(self, g: Builder, batch: int) -> None:
        x = task.images(g, batch, self.image)
        with g.scope("stem1"):
            x = _convolved(g, x, "0", CellConvolution(self.filters // 4, (3, 3), (2, 2)))
        before = x
        for name, cell in self.cells.items():
            with g.scope(name):
                x, before = _cell(g, before, x, cell), x
        with g.scope("pool"):
            x = pool(g, x, "average", self.image // HALVED)
        x = view(g, x, dims(sample=batch, feature=x.size("channel") * x.size("height") * x.size("width")))
        with g.scope("classify"):
            x = linear(g, x, dims(class_=self.classes))
        task.class_loss(g, x)


def _convolved(g: Builder, x: Value, name: str, conv: CellConvolution) -> Value:
    with g.scope(name):
        x = activation(g, x, "relu")
        with g.scope("conv"):
            x = convolution(g, x, conv.filters, conv.kernel, stride=conv.stride, padding=conv.padding, bias=False)
        with g.scope("norm"):
            return batch_norm(g, x)


def _halved(g: Builder, x: Value, filters: int) -> Value:
    """Two 1x1 convolutions of every second pixel, one of them moved by a pixel."""
    x = activation(g, x, "relu")
    sample, channel, height, width = x.dims
    moved = view(g, x, (sample, channel, Dim("height", height.size - 1), Dim("width", width.size - 1)), "slice")
    moved = pad(g, moved, x.dims)
    halves: list[Value] = []
    for name, part in (("conv1", x), ("conv2", moved)):
        with g.scope(name):
            halves.append(convolution(g, part, filters // 2, 1, stride=2, bias=False))
    with g.scope("norm"):
        return batch_norm(g, concatenate(g, halves, "channel"))


def _cell(g: Builder, before: Value, x: Value, cell: CellShape) -> Value:
    states = [_convolved(g, x, "reduce1", CellConvolution(cell.channels, (1, 1))), _second(g, before, cell)]
    found: list[Value] = []
    for at, step in enumerate(cell.plan.steps):
        stride = 2 if cell.reduces and step.state < 2 else 1
        with g.scope(f"operations.{at}"):
            found.append(_operation(g, states[step.state], step.word, cell.channels, stride))
        if at % 2:
            states.append(combine(g, found[-2], found[-1]))
    return concatenate(g, [states[at] for at in cell.plan.given], "channel")


def _second(g: Builder, before: Value, cell: CellShape) -> Value:
    """The state before the last, as wide and as large as the last."""
    if cell.after_reduction:
        with g.scope("reduce2"):
            return _halved(g, before, cell.channels)
    same = cell.before == cell.channels
    return before if same else _convolved(g, before, "reduce2", CellConvolution(cell.channels, (1, 1)))


def _operation(g: Builder, x: Value, word: str, channels: int, stride: int) -> Value:
    if word == "same":
        return x
    if word == "maximum":
        return pool(g, x, "max", 2, stride=stride)
    if word == "average":
        return pool(g, x, "average", 3, stride=stride, padding=1)
    for at, conv in enumerate(convolutions(word, channels, stride)):
        x = _convolved(g, x, str(at), conv)
    return x


PRESETS = {"amoebanet": Amoebanet(), "amoebanet-d": Amoebanet()}
