"""What every operator says about itself: a loop nest, and what its three parts cost.

An operator runs over named loops. Each operand spans some of them: a matrix product runs over
`batch row in out`, its input spans `batch row in`, its weight `batch in out`, its output
`batch row out`. What a split of one loop over ranks needs follows from that: an operand that
spans the loop is divided, an output that does not is left as partial sums.

The three parts are the forward pass, the gradient of the inputs and the gradient of the
weights. Formulas are plain arithmetic over loop sizes: hand them whole numbers or arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias

import msgspec

from foretell.units import Quantity, product, somewhere

Sizes: TypeAlias = Mapping[str, Quantity]
"""Loop name to size."""

Widths: TypeAlias = Mapping[str, Quantity]
"""Operand name to bytes per element."""

PARTS = ("forward", "input_gradient", "weight_gradient")


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """The cost of one part of one operator. Parts in sequence add up, depth included."""

    matrix: Quantity = 0  # flops that matrix units can do; a multiply-add is two
    vector: Quantity = 0  # all other flops
    read: Quantity = 0  # bytes
    written: Quantity = 0  # bytes
    launches: Quantity = 0  # kernels started by the host, eager
    fused: Quantity = 0  # kernels left when element-wise neighbours are compiled together
    work: Quantity = 0  # vertices of the work-depth graph (Ben-Nun, Hoefler, Tables 4 and 6)
    depth: Quantity = 0  # its longest path

    def __add__(self, other: OperatorPart) -> OperatorPart:  # written out: a prediction adds thousands of them
        return OperatorPart(
            self.matrix + other.matrix,
            self.vector + other.vector,
            self.read + other.read,
            self.written + other.written,
            self.launches + other.launches,
            self.fused + other.fused,
            self.work + other.work,
            self.depth + other.depth,
        )

    @property
    def nothing(self) -> bool:
        """Whether it costs nothing, of whatever size."""
        flops = somewhere(self.matrix) or somewhere(self.vector)
        moved = somewhere(self.read) or somewhere(self.written)
        counted = somewhere(self.launches) or somewhere(self.fused) or somewhere(self.work) or somewhere(self.depth)
        return not (flops or moved or counted)

    def __mul__(self, times: Quantity) -> OperatorPart:
        return OperatorPart(
            self.matrix * times,
            self.vector * times,
            self.read * times,
            self.written * times,
            self.launches * times,
            self.fused * times,
            self.work * times,
            self.depth * times,
        )


NOTHING = OperatorPart()


class Need(StrEnum):
    """What a split of one loop over ranks asks for beyond dividing the work."""

    NOTHING = "nothing"
    SUM = "partial sums"  # every rank holds a part of the sum
    HALO = "halo"  # neighbours exchange borders
    STATISTICS = "statistics"  # a small reduction: means, maxima, sums of exponentials
    GATHER = "gather"  # every rank must see the others' share (keys and values)
    EXCHANGE = "exchange"  # items travel to the rank that owns them (experts)
    SEQUENTIAL = "sequential"  # the loop carries a dependence and cannot run side by side
    WHOLE = "whole"  # nobody says how: every rank does all of it


class Operator(msgspec.Struct, frozen=True, tag_field="operator", omit_defaults=True, forbid_unknown_fields=True):
    """One kind of work. The defaults describe a memory-bound pass: read operands, write `y`."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("item",), "y": ("item",)}
    """Operand to the loops it runs over, outermost first; `y` is the output."""

    weight_operands: ClassVar[tuple[str, ...]] = ("w", "b")
    """Operands whose gradient is the weight-gradient part; the others' is the input part."""

    stored: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Operands whose dims lie in another order than their loops are written in `spans`."""

    together: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Loops that walk over the same dims side by side: dividing a dim of one divides it in the other."""

    @property
    def priced_as(self) -> str:
        """The kind of kernel that it is, as prices know it."""
        return str(type(self).__struct_config__.tag)

    def density(self, n: Sizes) -> Quantity:
        """The share of its work that a kernel which skips what is masked does."""
        return 1.0

    def made_again(self, n: Sizes) -> Quantity:
        """Matrix work of its backward pass that makes anew what its forward pass made and did not keep."""
        return 0

    def elements(self, operand: str, n: Sizes) -> Quantity:
        """How many elements of this operand the loops touch."""
        return product(n[loop] for loop in self.spans[operand])

    def bytes_of(self, operands: Collection[str], n: Sizes, width: Widths) -> Quantity:
        """Bytes of several operands; an operand the instance does not have has no width."""
        return sum(self.elements(name, n) * width[name] for name in operands if name in width)

    def inputs(self) -> tuple[str, ...]:
        """Every operand that is read."""
        return tuple(name for name in self.spans if name != "y")

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        read = self.bytes_of(self.inputs(), n, width)
        return OperatorPart(0, y, read, y * width["y"], 1, 0, y, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        written = self.bytes_of([i for i in self.inputs() if i not in self.weight_operands], n, width)
        y = self.elements("y", n)
        return OperatorPart(0, y, y * width["y"], written, 1, 0, y, 1)

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return NOTHING

    def part(self, name: str, n: Sizes, width: Widths) -> OperatorPart:
        """One of the three parts by name."""
        return getattr(self, name)(n, width)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        """Operands and extras that autograd keeps when these operands need a gradient."""
        return ()

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        """Tensors made only to be kept: name to (loops, element type; 'same' is x's type)."""
        return {}

    def evaluated(self) -> Operator | None:
        """What it is where nothing is trained, after `model.eval()`; None: it passes on what it gets."""
        return self

    def need(self, loop: str) -> Need:
        """What splitting this loop asks for in the forward pass."""
        return Need.NOTHING if loop in self.spans["y"] else Need.SUM

    def statistics(self, loop: str) -> tuple[tuple[str, tuple[str, ...], int], ...]:
        """The small reductions when this loop is divided: (phase, loops, numbers for each element) each."""
        return ()

    def halo(self, loop: str) -> tuple[int, int]:
        """Input positions before and after its own share that a rank needs when this loop is split."""
        return 0, 0
