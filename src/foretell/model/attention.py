"""What every way to attend says about itself: its work, its traffic, what it keeps, and how ranks can share it.

All of them are kernels of one operator (`operators/attention.py`), over the same loops: samples, heads, queries, keys.
So whoever asks for heads or positions need not know which one it is.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from foretell.model.operator import NOTHING, Need, OperatorPart, Sizes, Widths
from foretell.registry import OpenSet
from foretell.units import Quantity, at_least

if TYPE_CHECKING:
    from foretell.model.operators.attention import Attention

ATTENTIONS = OpenSet("foretell.model.attentions", "attention kernel")

Attend: TypeAlias = Callable[[Any, Any, Any, Any, float], Any]
"""Query, key, value, a bias or None, and the rate of dropout, to the output."""

SCORELESS = "scoreless_attention"
"""What a kernel is priced as that never makes a score for each query and key, whatever the trainer."""


class AttentionKernel(msgspec.Struct, frozen=True):
    """One way to attend. The name of its file is what models call it: `llama3-8b:attention=flash`."""

    summary: ClassVar[str]
    references: ClassVar[tuple[str, ...]]

    half_only: ClassVar[bool] = False
    """Whether it takes 16-bit types alone."""

    takes_bias: ClassVar[bool] = True
    otherwise: ClassVar[str] = ""
    """The kernel that runs where this one cannot: of another type, or with a bias."""

    shares_heads: ClassVar[bool] = False
    """Whether groups of query heads read one key and value head; else these are repeated before."""

    heads_outside: ClassVar[bool] = False
    """Whether its output has to be copied before heads are joined."""

    causal_only: ClassVar[bool] = False
    """Whether a query looks back alone, as those of decoders do."""

    local: ClassVar[bool] = False
    """Whether it takes a window to look back on, sinks of its heads, and soft caps on scores."""

    chosen: ClassVar[bool] = False
    """Whether it is told which keys each query sees; `window` is then how many."""

    rotates: ClassVar[bool] = True
    """Whether what ranks saw of some keys can be merged, so that keys and values may go round among them."""

    priced_as: ClassVar[str] = "attention"

    traced: ClassVar[tuple[str, ...]] = ()
    """PyTorch operators, `library.name`, that are this kernel: of `query`, `key` and `value` first."""

    torch: ClassVar[Attend | None] = None
    """Causal attention of torch tensors [sample, head, sequence, head_dim]; None: torch's own function."""

    @abc.abstractmethod
    def forward(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart: ...

    @abc.abstractmethod
    def input_gradient(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart: ...

    def bias_added(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        """What a bias costs in the forward pass."""
        return NOTHING

    def bias_summed(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        """The gradient of a bias that has one: that of the scores, summed over the samples."""
        return NOTHING

    def keeps(self, of: Attention) -> tuple[str, ...]:
        """Operands and extras that autograd keeps."""
        return ("q", "k", "v", "y")

    def extras(self, of: Attention) -> dict[str, tuple[tuple[str, ...], str]]:
        """Tensors made only to be kept: name to (loops, element type; 'same' is that of the queries)."""
        return {}

    def density(self, of: Attention, n: Sizes) -> Quantity:
        """The share of scores that a kernel which skips masked tiles computes."""
        seen = 1 / at_least(n["key"] / of.window, 1) if of.window else 1.0  # of the keys, by one query
        return seen * (1 - seen / 2) if of.causal else seen

    def made_again(self, of: Attention, n: Sizes) -> Quantity:
        """Matrix work of the backward pass for scores that the forward pass did not keep."""
        return 0

    def need(self, loop: str) -> Need:
        """What splitting a loop asks for."""
        return {"key": Need.GATHER, "qk": Need.SUM}.get(loop, Need.NOTHING)


@functools.cache
def attention_kernel(name: str) -> AttentionKernel:
    """The kernel of this name."""
    return ATTENTIONS[name].KERNEL
