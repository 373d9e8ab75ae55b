"""What goes otherwise than planned: jitter, stragglers, slow workers, failures, joins and leaves."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from foretell.errors import BadInput
from foretell.hardware.disturbance import CALM as CALM_MACHINE
from foretell.hardware.disturbance import Disturbance
from foretell.learning.tempo import spread, straggling, two_numbers, uneven


class MembershipChange(NamedTuple):
    """A worker joins or leaves for good at a time."""

    seconds: float
    worker: int
    joins: bool


class Disturbances(NamedTuple):
    """Each gradient takes the planned time, times what these say.

    jitter      the spread of a lognormal factor whose mean is 1 (0: none)
    often       the share of gradients that straggle, and `times` as long (Chen et al. 2016, arXiv 1604.00981)
    slow        workers, the last ones, that are slow all the time, and `slower` so often as long
    mtbf        mean seconds between failures of a worker; what it computes is lost, and `repair` seconds go by
    changes     joins and leaves; a worker that joins is not there before
    machine     slow workers by their number, slow links, another job: as `predict` and `run` are given them
    """

    jitter: float = 0.0
    often: float = 0.0
    times: float = 1.0
    slow: int = 0
    slower: float = 1.0
    mtbf: float = math.inf
    repair: float = 0.0
    changes: tuple[MembershipChange, ...] = ()
    machine: Disturbance = CALM_MACHINE

    @property
    def random(self) -> bool:
        return bool(self.jitter or self.often or math.isfinite(self.mtbf))

    def factor(self, worker: int, workers: int, draws: np.random.Generator) -> float:
        """How many times as long as planned this worker's next gradient takes."""
        factor = self.slower if worker >= workers - self.slow else 1.0
        factor *= self.machine.slowness(worker)
        return factor * uneven(self.jitter, self.often, self.times, draws)

    def failure(self, draws: np.random.Generator) -> float:
        """Seconds of computing until the next failure; forgetful, so that it can be drawn again for each gradient."""
        return float(draws.exponential(self.mtbf)) if math.isfinite(self.mtbf) else math.inf

    def away_at_first(self, worker: int) -> bool:
        first = min((change for change in self.changes if change.worker == worker), default=None)
        return first is not None and first.joins


CALM = Disturbances()


def read(
    jitter: float = 0.0, stragglers: str = "", slow: str = "", failures: str = "", changes: str = ""
) -> Disturbances:
    """As a person writes them: stragglers '0.1x5', slow '2x3', failures '600/30', changes '+3@10,-0@20'."""
    often, times = straggling(stragglers)
    count, slower = two_numbers(slow, "x", "--slow", "2x3: two workers take 3 times as long")
    mtbf, repair = two_numbers(failures, "/", "--failures", "600/30: one in 600 s of computing, 30 s to come back")
    if slower < 1 and slow:
        raise BadInput("disturbances make things slower", where="--slow", fix="2x3: two workers take 3 times as long")
    if not count.is_integer():
        raise BadInput(f"{count:g} workers", where="--slow", fix="2x3: two workers take 3 times as long")
    moves = tuple(_change(text.strip()) for text in changes.split(",")) if changes else ()
    mtbf = mtbf if failures else math.inf
    return Disturbances(spread(jitter), often, times, int(count), slower or 1.0, mtbf, repair, moves)


def _change(text: str) -> MembershipChange:
    form = re.fullmatch(r"([+-])([0-9]+)@([0-9]+(?:\.[0-9]*)?|\.[0-9]+)", text)
    if form is None:
        fix = "+3@10: worker 3 joins after 10 s; -0@20: worker 0 leaves after 20 s"
        raise BadInput(f"{text!r} is neither a join nor a leave", where="--changes", fix=fix)
    return MembershipChange(float(form[3]), int(form[2]), form[1] == "+")
