"""The gradient noise scale: how many samples it takes until their mean gradient is no longer mostly noise.

McCandlish, Kaplan, Amodei and the OpenAI Dota team 2018 (An Empirical Model of Large-Batch Training, arXiv 1812.06162),
appendix A.1: a mean over B samples has the squared length |G|^2 + tr(S) / B in the mean, where G is the gradient of all
data and S the spread of single samples. Pieces of b samples, and all B of them together, give two such equations:

    tr(S) = (|piece|^2 - |whole|^2) / (1/b - 1/B)        |G|^2 = (B |whole|^2 - b |piece|^2) / (B - b)

Either figure is right in the mean, their quotient is not. So looks are summed up first, and divided then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

KEPT: Final = 0.5
"""The share of the looks, from the last one back, that count: noise grows while the loss falls."""


class GradientLook(msgspec.Struct, frozen=True, kw_only=True):
    """Gradients at one moment of a training: of pieces of a batch, and of all of them together."""

    step: int  # after so many
    samples: int  # and so many of these
    piece: int  # samples of a piece
    whole: int  # of all pieces
    of_piece: float  # squared length of a piece's mean gradient, in the mean
    of_whole: float  # of the mean gradient of all

    @property
    def spread(self) -> float:
        """tr(S): what a single sample adds."""
        return (self.of_piece - self.of_whole) / (1 / self.piece - 1 / self.whole)

    @property
    def signal(self) -> float:
        """|G|^2: what is left without noise. Its estimate may be below 0 where noise is all that is seen."""
        return (self.whole * self.of_whole - self.piece * self.of_piece) / (self.whole - self.piece)


class NoiseScale(msgspec.Struct, frozen=True, kw_only=True):
    """tr(S) / |G|^2 over the later looks of a run, in samples."""

    samples: Annotated[float, msgspec.Meta(ge=0, le=1e18)] | None  # None: the gradient cannot be told from the noise
    error: float | None  # as far as looks tell it: what the figure moves when one of them is left out; None: too few
    sequence: Annotated[int, msgspec.Meta(ge=0, le=10**9)]  # tokens of a sample; 0: it is no sequence
    looks: tuple[GradientLook, ...]


def noise_scale(looks: Sequence[GradientLook], sequence: int = 0) -> NoiseScale:
    """The noise scale of a run, from its looks in order."""
    counted = looks[-math.ceil(KEPT * len(looks)) :]
    return NoiseScale(samples=_quotient(counted), error=_error(counted), sequence=sequence, looks=tuple(looks))


def _quotient(looks: Sequence[GradientLook]) -> float | None:
    spread, signal = sum(one.spread for one in looks), sum(one.signal for one in looks)
    return max(0.0, spread) / signal if signal > 0 else None


def _error(looks: Sequence[GradientLook]) -> float | None:
    """The jackknife's standard error: the quotient without each look in turn."""
    count = len(looks)
    left = [_quotient([*looks[:at], *looks[at + 1 :]]) for at in range(count)] if count > 2 else []
    known = [one for one in left if one is not None]
    if not left or len(known) < len(left):
        return None
    middle = sum(known) / count
    return math.sqrt((count - 1) / count * sum((one - middle) ** 2 for one in known))
