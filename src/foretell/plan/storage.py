"""How weights, their gradients and the optimizer's states lie between uses along an axis that uses them whole.

Along such an axis (data, context) every rank computes with the whole weight and holds a summand of
its gradient. How they are stored is a choice apart, one row of this table each:

    replicated   all of everything everywhere                       data parallelism
    zero1        states in shares                                   Rajbhandari et al. 2020 (ZeRO), arXiv 1910.02054
    zero2        states and gradients in shares                     the same
    zero3        states, gradients and weights in shares            the same; Zhao et al. 2023 (FSDP), arXiv 2304.11277
"""

from __future__ import annotations

from typing import Final

import msgspec


class Storage(msgspec.Struct, frozen=True):
    """What lies in shares between uses. A gradient that does not is summed up only when it is needed."""

    name: str
    states: bool = False
    gradients: bool = False
    weights: bool = False


STORAGES: Final = {
    "replicated": Storage("replicated"),
    "zero1": Storage("zero1", states=True),
    "zero2": Storage("zero2", states=True, gradients=True),
    "zero3": Storage("zero3", states=True, gradients=True, weights=True),
}
