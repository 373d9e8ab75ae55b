"""What the control groups of this process, as containers and batch systems set them, leave it of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class _Files(NamedTuple):
    """Where a version of control groups tells of memory."""

    folder: str
    limit: str
    used: str
    spare: str  # of what is used: file pages that the kernel gives up first


_FILES = {
    "": _Files("", "memory.max", "memory.current", "inactive_file"),
    "memory": _Files("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By the controllers that /proc/self/cgroup names: version 2 names none (cgroups(7))."""


def free_bytes(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Bytes left under each limit: that of the group of this process, and those of the groups around it."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for files in (files for name, files in _FILES.items() if name in controllers.split(",")):
            top = root / files.folder
            group = top / path.strip("/")
            for one in (group, *group.parents):
                if one.is_relative_to(top):
                    yield from _left(one, files)


def _left(group: Path, files: _Files) -> Iterator[int]:
    """Nothing where there is no limit ("max"), or no group: a container may not see the folder of its own."""
    try:
        limit, used = (int((group / name).read_text(encoding="utf-8")) for name in (files.limit, files.used))
        told = dict(line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return
    yield max(0, limit - used + int(told.get(files.spare, 0)))
