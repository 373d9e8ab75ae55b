"""What gloo really does under PyTorch, which is not what its names say.

A sender asks first: it waits until the receiver has said that it is ready, so where ranks begin together each hop
takes the latency twice. An all-reduce is a ring, and so is an all-gather; a reduce-scatter is an all-reduce of which
each rank keeps its share; a broadcast is a binomial tree of whole tensors, whose lower ranks have said long ago that
they are ready; in an all-to-all all messages leave at once. A pipeline's receiver has been waiting where anybody waits
for its message; neighbours that exchange something come together, and ask.

Measured between emulated hosts (`python benchmarks/lab.py gloo`, 100 Mb/s, 5 ms; gloo of PyTorch 2.13; the samples are
in studies/lab/gloo.jsonl), 1 KiB, median in delays on 2 and 4 hosts: all-reduce 4.3 and 13.0, reduce-scatter
4.4 and 12.8, all-gather 2.2 and 6.6, broadcast 2.2 and 3.3, all-to-all 2.4 and 2.4. Two neighbours that exchange 1 KiB
take 2.6 to 3.3 delays of 1 ms, and 2.9 to 3.2 of 0.5 ms.

Ranks of a step do not begin together, and then an all-gather of two takes half as long again. Both ways of the pair
are one connection: the rank that comes last, which the other one waits for, sends the first of its two segments at
once, and behind it the word that it is ready itself. So it hears the other one's two segments half a message later
(measured there at 200 Mb/s, 1 MiB, a rank 70 ms late: 36.5 ms after it came instead of 25.3; of four ranks 41.7 and
46.6).
"""

from __future__ import annotations

import msgspec

from foretell.cost.collectives import binomial, direct, point_to_point, ring
from foretell.cost.collectives._traffic import REDUCING, AlgorithmTraffic, Load, Steps
from foretell.cost.fabric import Route

FAMILY = "gloo"
TOGETHER = ("exchange", "shift")
"""Messages of neighbours to each other, or of all ranks to the next."""

KINDS = (*REDUCING, "broadcast", "all-to-all", *TOGETHER)

ASKED = 2
"""Latencies of a message that nobody waits for yet: the question, and the answer."""

BEHIND = 1.5
"""Messages that an all-gather of two takes: the word that a rank is ready is behind half of its own."""


SIDES = 2
"""Neighbours of a rank in the middle of a line, which sends something to both over one port."""


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    if kind == "all-to-all":
        found = direct.traffic(kind, route)
        return found and _with(found, _at_once(route))
    if kind == "broadcast":
        found = binomial.traffic(kind, route)
        return found and _with(found, _asked_once(found.steps))
    if kind in TOGETHER:
        found = point_to_point.traffic(kind, route)
        if found and kind == "exchange" and route.ranks > 2:
            found = AlgorithmTraffic(
                _more(found.inside, SIDES), _more(found.network, SIDES), found.steps, found.pipelined
            )
        return found and _with(found, _at_once(route))
    found = ring.traffic("all-gather" if kind == "all-gather" else "all-reduce", route)
    if found and kind == "all-gather" and route.ranks == 2:
        found = AlgorithmTraffic(
            _more(found.inside, BEHIND), _more(found.network, BEHIND), found.steps, found.pipelined
        )
    return found and _with(found, Steps(ASKED * found.steps.inside, ASKED * found.steps.network, found.steps.passages))


def _at_once(route: Route) -> Steps:
    return Steps(0, ASKED, 1) if route.domains > 1 else Steps(ASKED, 0, 0)


def _asked_once(steps: Steps) -> Steps:
    """The first of several hops is asked for."""
    extra = ASKED - 1
    if steps.network:
        return Steps(steps.inside, steps.network + extra, steps.passages)
    return Steps(steps.inside + extra, 0, 0)


def _more(loads: tuple[Load, ...], times: float) -> tuple[Load, ...]:
    return tuple(msgspec.structs.replace(load, volume=times * load.volume) for load in loads)


def _with(found: AlgorithmTraffic, steps: Steps) -> AlgorithmTraffic:
    return AlgorithmTraffic(found.inside, found.network, steps, found.pipelined)
