"""What goes otherwise than planned: jitter, stragglers, slow workers, failures, joins and leaves."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from foretell.errors import BadInput
from foretell.hardware.disturbance import CALM as CALM_MACHINE
from foretell.hardware.disturbance import Disturbance


class Change(NamedTuple):
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
    changes: tuple[Change, ...] = ()
    machine: Disturbance = CALM_MACHINE

    @property
    def random(self) -> bool:
        return bool(self.jitter or self.often or math.isfinite(self.mtbf))

    def factor(self, worker: int, workers: int, draws: np.random.Generator) -> float:
        """How many times as long as planned this worker's next gradient takes."""
        factor = self.slower if worker >= workers - self.slow else 1.0
        factor *= self.machine.slowness(worker)
        if self.jitter:
            factor *= math.exp(self.jitter * draws.standard_normal() - self.jitter**2 / 2)
        if self.often and draws.random() < self.often:
            factor *= self.times
        return factor

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
    often, times = _pair(stragglers, "x", "--stragglers", "0.1x5: a tenth of the gradients takes 5 times as long")
    count, slower = _pair(slow, "x", "--slow", "2x3: two workers take 3 times as long")
    mtbf, repair = _pair(failures, "/", "--failures", "600/30: one in 600 s of computing, 30 s to come back")
    if not 0 <= jitter < math.inf or often > 1 or (times < 1 and stragglers) or (slower < 1 and slow):
        raise BadInput("disturbances make things slower", where="--jitter, --stragglers, --slow", fix="0.1x5")
    if not count.is_integer():
        raise BadInput(f"{count:g} workers", where="--slow", fix="2x3: two workers take 3 times as long")
    moves = tuple(_change(text.strip()) for text in changes.split(",")) if changes else ()
    return Disturbances(
        jitter, often, times or 1.0, int(count), slower or 1.0, mtbf if failures else math.inf, repair, moves
    )


def _pair(text: str, between: str, where: str, fix: str) -> tuple[float, float]:
    if not text:
        return 0.0, 0.0
    parts = text.split(between)
    try:
        first, second = map(float, parts)
    except ValueError:
        raise BadInput(f"{text!r} are not two numbers", where=where, fix=fix) from None
    if not (0 < first < math.inf and 0 <= second < math.inf):
        raise BadInput(f"{text!r} is out of range", where=where, fix=fix)
    return first, second


def _change(text: str) -> Change:
    form = re.fullmatch(r"([+-])([0-9]+)@([0-9]+(?:\.[0-9]*)?|\.[0-9]+)", text)
    if form is None:
        fix = "+3@10: worker 3 joins after 10 s; -0@20: worker 0 leaves after 20 s"
        raise BadInput(f"{text!r} is neither a join nor a leave", where="--changes", fix=fix)
    return Change(float(form[3]), int(form[2]), form[1] == "+")
