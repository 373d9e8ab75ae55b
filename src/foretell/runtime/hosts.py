"""Ranks that lie on emulated hosts: what `foretell lab run` tells those that it starts.

It is told by the environment, since the ranks are started by processes that know nothing of it.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from foretell.errors import BadInput

NAMESPACES = "FORETELL_HOSTS"
DEVICE = "lab0"
"""What every emulated host calls its network device."""

CLONE_NEWNET = 0x40000000


def told(namespaces: Sequence[str]) -> dict[str, str]:
    """The environment of ranks on hosts."""
    return {NAMESPACES: ",".join(namespaces)}


@contextmanager
def on_hosts(namespaces: Sequence[str]) -> Generator[None]:
    """Ranks that are started meanwhile lie on these hosts."""
    os.environ.update(told(namespaces))
    try:
        yield
    finally:
        del os.environ[NAMESPACES]


def hosts(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The hosts that ranks of this process lie on; none where they lie on this machine."""
    return [one for one in environment.get(NAMESPACES, "").split(",") if one]


def own_address() -> str:
    """Where ranks of other hosts reach this process; this machine's own ranks need no network."""
    if not hosts():
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect(("10.77.0.254", 9))  # nothing is sent: the kernel says which address would be used
        return line.getsockname()[0]


def settle(rank: int, world: int) -> None:
    """Put this process on the host of a rank, if there are hosts: as many ranks next to each other on each."""
    found = hosts()
    if not found:
        return
    if world % len(found):
        what = f"{world} ranks on {len(found)} hosts"
        raise BadInput(what, where="foretell lab run", fix=f"--hosts {world}, or a plan of {len(found)} ranks")
    enter(found[rank * len(found) // world])
    os.environ["GLOO_SOCKET_IFNAME"] = DEVICE


def enter(namespace: str) -> None:
    """Put this thread, and what it starts from now on, into a network namespace."""
    space = os.open(namespace, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(space, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter the host", namespace)
    os.close(space)
