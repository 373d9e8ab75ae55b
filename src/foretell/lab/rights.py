"""What the lab needs of this machine, and what to do where it is missing."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from foretell.errors import BadInput
from foretell.lab import compiler
from foretell.runtime.hosts import CLONE_NEWNET

TUN = Path("/dev/net/tun")


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
    if not _may_unshare():
        yield "network namespaces may not be made by this user", "sudo, or --cap-add SYS_ADMIN in a container"


def check() -> None:
    """Refuse where something is missing: all of it at once."""
    found = list(missing())
    if found:
        whats, fixes = zip(*found, strict=True)
        raise BadInput("; ".join(whats), where="foretell lab", fix="; ".join(dict.fromkeys(fixes)))


def _may_unshare() -> bool:
    """Tried in a child, which ends at once."""
    child = os.fork()
    if not child:
        os._exit(ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
