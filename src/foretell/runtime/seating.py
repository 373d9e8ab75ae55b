# pyright: basic
"""How ranks that are started on several hosts meet, one run after the other: at one store, under a key for each run.

torch clears nothing from a store, and a second group would find the addresses of the first. So each run has a name, and
`seats://HOST:PORT/NAME` is where it meets: a way to meet that torch is taught here, for whoever asks it to form a group
(DeepSpeed forms its own).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qs, urlparse

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.rendezvous import register_rendezvous_handler

SCHEME = "seats"
PATIENCE = timedelta(seconds=300)
"""That ranks wait for each other, when they meet and in a collective, before they give up."""


def address(host: str, port: str, name: str) -> str:
    """Where the ranks of a run meet."""
    return f"{SCHEME}://{host}:{port}/{name}"


def learn() -> None:
    """Teach torch these addresses."""
    register_rendezvous_handler(SCHEME, _meet)


def _meet(url: str, timeout: timedelta = PATIENCE, **_: object) -> Iterator[tuple[Store, int, int]]:
    parts = urlparse(url)
    asked = parse_qs(parts.query)
    rank, world = int(asked["rank"][0]), int(asked["world_size"][0])
    assert parts.hostname and parts.port
    store = TCPStore(parts.hostname, parts.port, world_size=None, is_master=False, timeout=timeout)
    yield PrefixStore(parts.path.strip("/"), store), rank, world
