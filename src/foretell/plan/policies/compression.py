"""Compression: gradients are made smaller before they travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.model.operators.matmul import Matmul
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Fraction, Number, Option, WordChoice
from foretell.plan.together import storage
from foretell.units import Quantity, at_least, ceil_div, product

if TYPE_CHECKING:
    from foretell.plan.setting import Setting

INDEX = 4
"""Bytes of the place of one element (32-bit, as in Lin et al. 2018 and common implementations)."""

SCALE = 4
"""Bytes of the fp32 scale that a quantised tensor travels with."""


class Compression(Policy, frozen=True, kw_only=True, tag="compression"):
    """How the gradient of one tensor is written for the others.

    fp16      each element in 16 bits
    int8      each element in 8 bits, and a scale (Dettmers 2016)
    ternary   minus one, nought or one, and a scale: two bits (Wen et al. 2017)
    qsgd      a norm, and each element as a sign and one of so many levels of it (Alistarh et al. 2017)
    1bit      the signs, and a scale; what is lost is added next time (Seide et al. 2014, Tang et al. 2021)
    topk      the largest elements only, each with its place (Aji and Heafield 2017)
    dgc       the same of momentum that each rank keeps itself (Lin et al. 2018)
    threshold elements above a threshold that so many pass, as its sign and place (Strom 2015; Dryden et al. 2016)
    powersgd  two thin matrices whose product is near (Vogels et al. 2019)
    factors   of dense layers the two matrices whose product it is, with so many rows (Xie et al. 2016)
    """

    word: ClassVar[str] = "compress"
    place: ClassVar[int] = 70
    summary: ClassVar[str] = "make gradients smaller before they travel"
    references: ClassVar[tuple[str, ...]] = (
        "Dettmers 2016 (8-bit), arXiv 1511.04561",
        "Alistarh et al. 2017 (QSGD), arXiv 1610.02132",
        "Wen et al. 2017 (TernGrad), arXiv 1705.07878",
        "Seide et al. 2014 (1-bit SGD), Interspeech",
        "Tang et al. 2021 (1-bit Adam), arXiv 2102.02888",
        "Aji and Heafield 2017 (sparse communication), arXiv 1704.05021",
        "Lin et al. 2018 (deep gradient compression), arXiv 1712.01887",
        "Strom 2015 (threshold), Interspeech",
        "Dryden et al. 2016 (a threshold for a share), MLHPC",
        "Vogels et al. 2019 (PowerSGD), arXiv 1905.13727",
        "Xie et al. 2016 (sufficient factors), arXiv 1409.5705",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        WordChoice("width", {"fp16": "fp16", "int8": "int8", "1bit": "1bit", "ternary": "ternary"}),
        Fraction("topk", "kept"),
        Fraction("dgc", "corrected"),
        Fraction("threshold", "passed"),
        Number("powersgd", "rank"),
        Number("qsgd", "levels"),
        Number("factors", "factors"),
    )
    example: ClassVar[str] = "+compress:powersgd4"

    width: str = "same"
    kept: float = 0.0  # share of the elements that travel; 0: not by top-k
    corrected: float = 0.0  # the same of momentum; 0: not by deep gradient compression
    passed: float = 0.0  # share of the elements above the threshold; 0: not by one
    rank: int = 0  # of the product; 0: not by PowerSGD
    levels: int = 0  # that a magnitude is rounded to, nought apart; 0: not by QSGD
    factors: int = 0  # samples or tokens of a rank's gradient; 0: not by sufficient factors

    @property
    def method(self) -> str:
        """One of none, fp16, int8, ternary, qsgd, 1bit, topk, dgc, threshold, powersgd, factors."""
        sizes = {
            "topk": self.kept,
            "dgc": self.corrected,
            "threshold": self.passed,
            "powersgd": self.rank,
            "qsgd": self.levels,
            "factors": self.factors,
        }
        known = next((name for name, size in sizes.items() if size), self.width)
        return "none" if known == "same" else known

    @property
    def adds(self) -> bool:
        """Whether compressed gradients can be added up on the way; else every rank needs everybody's."""
        return self.method in ("none", "fp16", "powersgd")

    def payload(self, elements: Quantity, rows: Quantity, width: Quantity, dense: bool = False) -> Quantity:
        """Bytes that a gradient of this many elements of this width becomes, as a matrix with these rows.

        `dense`: of a dense layer, the product of what came in and what came back, a row for each sample or token.
        """
        method = self.method
        if method == "fp16":
            return 2 * elements
        if method == "int8":
            return elements + SCALE
        if method == "ternary":
            return ceil_div(elements, 4) + SCALE
        if method == "qsgd":  # a sign, and which level: as bits of one width, without Elias's coding
            return ceil_div(elements * (1 + self.levels.bit_length()), 8) + SCALE
        if method == "1bit":
            return ceil_div(elements, 8) + SCALE
        if method in ("topk", "dgc"):
            return ceil_div(elements * (self.kept or self.corrected), 1) * (width + INDEX)
        if method == "threshold":  # places, whose highest bit is the sign, and the threshold
            return ceil_div(elements * self.passed, 1) * INDEX + SCALE
        if method == "factors" and dense:
            return _smaller(self.factors * (rows + ceil_div(elements, rows)), elements) * width
        if method == "powersgd":  # what it would not make smaller (vectors) travels as it is
            return _smaller(self.rank * (rows + ceil_div(elements, rows)), elements) * width
        return elements * width

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        kept = storage(setting.plan)
        if kept.states and not self.adds:
            why = f"{kept.name} sums gradients into shares, and {self.method} gradients cannot be added up on the way"
        elif self.factors and self.factors < (needed := summed_rows(setting)):
            why = f"factors{self.factors} has too few rows: a rank's gradient of a dense layer is a sum over {needed:,}"
            yield Refusal("whole factors", why, mends=changed(setting.plan, Compression(factors=needed)))
            return
        elif kept.gradients and self.rank:
            why = f"{kept.name} leaves a rank a share of a gradient, and powersgd{self.rank} needs whole matrices"
        else:
            return
        yield Refusal("gradients that add up", why, mends=changed(setting.plan, Compression()))


def summed_rows(setting: Setting) -> int:
    """What a rank's gradient of a dense layer is a sum over: its samples, and the tokens seen each for itself."""
    from foretell.plan.job import batch_ranks  # plans are made of policies, and jobs know plans

    nodes = (node for block in setting.graph.blocks for node in block.nodes if isinstance(node.operator, Matmul))
    seen = (loop.dims for node in nodes for loop in node.loops if loop.name == "row")
    tokens = max((product(dim.size for dim in dims if dim.name != "sample") for dims in seen), default=1)
    return tokens * ceil_div(setting.job.batch, batch_ranks(setting.plan))


def _smaller(a: Quantity, b: Quantity) -> Quantity:
    return -at_least(-a, -b)
