"""What the lab needs of this machine, and what to do where it is missing."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from foretell.errors import BadInput
from foretell.lab import compiler
from foretell.runtime.hosts import CLONE_NEWNET

TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""Of linux/if_tun.h."""

NOTHING, NO_NAMESPACE, NO_DEVICE = range(3)


def missing() -> Iterator[tuple[str, str]]:
    """What is missing, and what would help."""
    if sys.platform != "linux":
        yield f"emulated hosts need Linux, and this is {sys.platform}", "a Linux machine, or a virtual one"
        return
    if not compiler.found():
        yield "no C compiler: the switch between the hosts is compiled here", "apt install gcc, or CC=/path/to/compiler"
    if not shutil.which("ip"):
        yield "no `ip`: without it connections start slowly", "apt install iproute2"
    if not TUN.exists():
        yield f"{TUN} is not there", "modprobe tun; in a container: --device /dev/net/tun --cap-add NET_ADMIN"
    elif not os.access(TUN, os.R_OK | os.W_OK):
        yield f"{TUN} may not be opened by this user", "sudo, or root in the container"
    refused = _refused()
    if refused == NO_NAMESPACE:
        yield "network namespaces may not be made by this user", "sudo, or --cap-add SYS_ADMIN in a container"
    elif refused == NO_DEVICE and os.access(TUN, os.R_OK | os.W_OK):
        yield "network devices may not be made by this user", "sudo, or --cap-add NET_ADMIN in a container"


def check() -> None:
    """Refuse where something is missing: all of it at once."""
    found = list(missing())
    if found:
        whats, fixes = zip(*found, strict=True)
        raise BadInput("; ".join(whats), where="foretell lab", fix="; ".join(dict.fromkeys(fixes)))


def _refused() -> int:
    """What the kernel does not let this user do. Tried in a child, which ends at once, and its namespace with it."""
    child = os.fork()
    if not child:
        os._exit(_tried())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _tried() -> int:
    import fcntl  # which other systems have not, and are told so before

    try:
        if ctypes.CDLL(None).unshare(CLONE_NEWNET):
            return NO_NAMESPACE
        with TUN.open("rb+", buffering=0) as device:
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"lab0", IFF_TUN | IFF_NO_PI))
    except OSError:
        return NO_DEVICE
    return NOTHING
