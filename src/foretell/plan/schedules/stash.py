"""PipeDream: 1F1B that never runs empty, with the weights of each forward kept for its backward."""

from __future__ import annotations

from foretell.plan.schedule import PassTimes
from foretell.plan.schedules.one_forward_one_backward import OneForwardOneBackward
from foretell.units import Quantity


class Stash(OneForwardOneBackward, frozen=True):
    """Every micro-batch is a mini-batch of its own: a rank updates its weights after each backward.

    The list is that of a pipeline that starts empty. The next round follows without a pause: its
    first forwards run where this one's list drains, so the start is paid once in a training run.
    """

    name = "stash"
    summary = "1F1B without flushing: no bubble, weights as many updates old as ranks follow, a version for each"
    references = (
        "Narayanan et al. 2019, PipeDream, SOSP, doi 10.1145/3341301.3359646, section 3.3",
        "Harlap et al. 2018, PipeDream, arXiv 1806.03377",
    )
    flushes = False

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return ranks - rank

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity:
        return 0 * times.forward

    def weight_versions(self, rank: int, ranks: int) -> int:
        return ranks - rank

    def staleness(self, rank: int, ranks: int) -> int:
        return ranks - 1 - rank


SCHEDULE = Stash()
