"""What a collective costs. One file per algorithm, one per library; the cheapest of what the library has is taken.

    from foretell.cost.collectives import collective_seconds
    from foretell.cost.fabric import Group
    collective_seconds("all-reduce", 2**30, Group(16), cluster("16xh100")).seconds

An algorithm says how many bytes it puts on each link and how many hops have to wait for each other; a protocol
(LL, LL128, Simple) turns that into seconds.
"""

from foretell.cost.collectives._library import (
    ALGORITHMS,
    LIBRARIES,
    MESSAGES,
    Library,
    alpha_beta,
    library,
    library_of,
)
from foretell.cost.collectives._price import EVIDENCE, CollectivePrice, collective_seconds
from foretell.cost.collectives._protocols import EVERY_FAMILY, Protocol
from foretell.cost.collectives._traffic import KINDS, POINT_KINDS

__all__ = [
    "ALGORITHMS",
    "EVERY_FAMILY",
    "EVIDENCE",
    "KINDS",
    "LIBRARIES",
    "MESSAGES",
    "POINT_KINDS",
    "CollectivePrice",
    "Library",
    "Protocol",
    "alpha_beta",
    "collective_seconds",
    "library",
    "library_of",
]
