# pyright: basic
"""How ranks meet, one run after the other: two kinds of addresses that torch is taught here, for whoever asks it to
form a group (DeepSpeed forms its own).

`seats://HOST:PORT/NAME` is for ranks of several hosts, which meet at one store. torch clears nothing from a store, and
a second group would find the addresses of the first: so each run has a name, and what it keeps lies under that.

`folder:///PATH` is a file of this machine. torch's own `file://` ends a path where it has a `#` or a `?`, and folders
for temporary files may be called anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import ParseResult, parse_qs, quote, unquote, urlparse

from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore
from torch.distributed.rendezvous import register_rendezvous_handler

SCHEME = "seats"
FOLDER = "folder"
PATIENCE = timedelta(seconds=300)
"""That ranks wait for each other, when they meet and in a collective, before they give up."""


def address(host: str, port: str, name: str) -> str:
    """Where the ranks of a run meet."""
    return f"{SCHEME}://{host}:{port}/{name}"


def in_file(file: Path) -> str:
    """Where ranks of this machine meet in a file, whatever it is called."""
    return f"{FOLDER}://{quote(str(file.absolute()))}"


def learn() -> None:
    """Teach torch these addresses."""
    register_rendezvous_handler(SCHEME, _meet)
    register_rendezvous_handler(FOLDER, _meet_in_file)


def _meet(url: str, timeout: timedelta = PATIENCE, **_: object) -> Iterator[tuple[Store, int, int]]:
    parts = urlparse(url)
    assert parts.hostname and parts.port
    store = TCPStore(parts.hostname, parts.port, world_size=None, is_master=False, timeout=timeout)
    yield PrefixStore(parts.path.strip("/"), store), *_seat(parts)


def _meet_in_file(url: str, **_: object) -> Iterator[tuple[Store, int, int]]:
    parts = urlparse(url)
    rank, world = _seat(parts)
    yield FileStore(unquote(parts.path), world), rank, world


def _seat(parts: ParseResult) -> tuple[int, int]:
    """Rank and world, as torch writes them behind an address."""
    asked = parse_qs(parts.query)
    return int(asked["rank"][0]), int(asked["world_size"][0])
