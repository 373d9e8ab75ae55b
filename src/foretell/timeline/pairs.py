"""A forward and a backward that run together: what of their messages nobody waits for.

DeepSeek-V3 (arXiv 2412.19437, section 3.2.1): while rows of one pass travel to experts and home, kernels of the other
compute; messages hold some multiprocessors. Of a pair with seconds C of kernels and M of rows, and a share s of the
device held by messages, no order takes less than max(C + s M, M), and pieces that alternate come near to it.
"""

from __future__ import annotations

from collections.abc import Iterable

from foretell.cost.price import PricedProgram
from foretell.plan.schedule import SLOT_KINDS, Slot


def hidden_seconds(plan: PricedProgram, pair: Iterable[Slot]) -> float:
    """Seconds that a pair takes less than its two passes one after the other."""
    prices = plan.prices
    slots = [(plan.signatures[plan.stages[slot.stage]], SLOT_KINDS.index(slot.kind)) for slot in pair]
    own = [(plan.kinds[kind], times, number) for one, number in slots for kind, times, *_ in one.layers]
    messages = sum(float(cost.rows[number]) * times for cost, times, number in own)
    busy = sum(float(cost.device[number]) * times for cost, times, number in own)
    held = prices.trainer.experts.beside / prices.device.multiprocessors
    return min((1 - held) * messages, busy - messages)
