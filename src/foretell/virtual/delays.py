"""Lower bounds of one exchange of parameters, and figure 14 of the taxonomy that is made of them.

Langer, He, Rahayu, Xue 2020 (arXiv 2007.03970), section 3.4: T_w, R_w and U_w are the seconds to transmit, sum and
update the whole model; n workers. The engine plays the same patterns message by message and arrives at the same times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec


class ModelTimes(NamedTuple):
    """Of a whole model."""

    transmit: float
    reduce: float
    update: float


def _single(n: int, t: ModelTimes) -> float:
    return 2 * n * t.transmit + (n - 1) * t.reduce + t.update


def _binomial(n: int, t: ModelTimes) -> float:
    return 2 * math.ceil(math.log2(n + 1)) * t.transmit + math.ceil(math.log2(n)) * t.reduce + t.update


def _scatter(n: int, t: ModelTimes) -> float:
    return (2 + 2 * (n - 1) / n) * t.transmit + (n - 1) / n * t.reduce + t.update


def _one_of_many(n: int, t: ModelTimes) -> float:
    return n * t.transmit + t.update


def _shares(n: int, t: ModelTimes) -> float:
    return 2 * (n - 1) / n * t.transmit + (n - 1) / n * t.reduce + t.update / n


def _doubling(n: int, t: ModelTimes) -> float:
    return math.ceil(math.log2(n)) * (t.transmit + t.reduce) + t.update


def _ring(n: int, t: ModelTimes) -> float:
    return 2 * (n - 1) / n * t.transmit + (n - 1) / n * t.reduce + t.update


BOUNDS: Final[dict[str, Callable[[int, ModelTimes], float]]] = {
    "sync@single": _single,
    "sync@binomial": _binomial,
    "sync@scatter": _scatter,
    "async@single": _one_of_many,
    "sync@shares": _shares,
    "sync@doubling": _doubling,
    "sync@replicated": _ring,
}
"""By the words of `foretell simulate`. Asynchronous: all workers, overlapped."""

MIB: Final = 2.0**20
GIB: Final = 2.0**30

REDUCES: Final = 10 * GIB
UPDATES: Final = 2 * GIB
"""Bytes a second, as the figure takes them."""

LINKS: Final = {"10G Ethernet": 10e9 / 8, "InfiniBand QDR": 32e9 / 8}
"""Bytes a second; QDR: four lanes of 10 Gbit/s, of which 8/10 are data. Latency is left out, as in the figure."""


class Trained(NamedTuple):
    """A model of the figure on a TitanX: bytes of its parameters, and seconds of one batch."""

    size: float
    seconds: float
    samples: int


MODELS: Final = {
    "ResNet-110, CIFAR-10": Trained(6.7 * MIB, 0.09, 64),
    "VGG-A, ImageNet": Trained(491 * MIB, 0.45, 50),
    "ResNet-152, ImageNet": Trained(223 * MIB, 0.77, 32),
}
MOST_WORKERS: Final = 15


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the figure: seconds of an exchange for 1 to 15 workers, beside those of computing."""

    model: str
    link: str
    pattern: str
    compute_seconds: float
    seconds: tuple[float, ...]

    @property
    def hidden_to(self) -> int:
        """The most workers whose exchange takes no longer than computing; 0: not even one's."""
        return sum(one <= self.compute_seconds for one in self.seconds)


def figure14() -> list[Delay]:
    """All lines, by model and link."""
    found: list[Delay] = []
    for model, about in MODELS.items():
        for link, rate in LINKS.items():
            times = ModelTimes(about.size / rate, about.size / REDUCES, about.size / UPDATES)
            for pattern, bound in BOUNDS.items():
                seconds = tuple(bound(n, times) for n in range(1, MOST_WORKERS + 1))
                found.append(
                    Delay(model=model, link=link, pattern=pattern, compute_seconds=about.seconds, seconds=seconds)
                )
    return found
