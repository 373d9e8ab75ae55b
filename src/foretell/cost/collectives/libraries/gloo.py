"""Gloo: between processes on host processors, over sockets.

Which bytes it really sends is in `cost/collectives/gloo.py`, measured between emulated hosts (studies/lab).
"""

from __future__ import annotations

from foretell.cost.collectives import EVERY_FAMILY, MESSAGES, Library, Protocol, gloo

SOCKETS = Protocol(
    name="sockets", families=(*EVERY_FAMILY, "gloo"), base=0.0, hop=1.0, network_hop=1.0, fabric_hop=1.0, fill=0.0
)  # fmt: skip
"""Gloo over TCP: a latency a hop and a rate, measured on loopback from 1 KiB to 64 MiB (links/loopback.toml)."""

LIBRARY = Library(
    name="gloo",
    summary="between host processors, over sockets: senders wait for their receivers",
    algorithms={**MESSAGES, **dict.fromkeys(gloo.KINDS, ("gloo",))},
    protocols=(SOCKETS,),
    rendezvous=True,
    contends=False,
    on_cores=True,
)
