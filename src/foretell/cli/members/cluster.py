"""What is said of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.cli.members._page import MemberPage, PageFigure
from foretell.hardware.quantity import show

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster


def names() -> list[str]:
    from foretell.hardware import members

    return [*members.names("clusters"), "this-machine"]


def page(text: str) -> MemberPage:
    from foretell.hardware import catalog

    named = catalog.named(text)
    found = named.cluster
    lines = [
        PageFigure(
            "ranks", f"{found.ranks:,}: {found.nodes:,} node{'s' * (found.nodes > 1)} of {found.ranks_per_node}"
        ),
        PageFigure("devices", " + ".join(f"{group.ranks:,} x {group.device.name}" for group in found.groups)),
        *_levels(found),
    ]
    lines += [PageFigure("topology", found.topology)] if found.topology != "tree" else []
    lines += [PageFigure("library", found.library)] if found.library else []
    lines += [PageFigure("note", note) for note in named.notes]
    tail = (f"About a part: foretell describe {found.groups[0].device.name}, {found.levels[-1].link.name}",)
    return MemberPage("cluster", found.text, found.title, tuple(lines), tail, (), found)


def _levels(found: Cluster) -> Iterator[PageFigure]:
    below = "devices"
    for at, level in enumerate(found.levels):
        ports = f", {level.ports} ports a node" if level.link.per_port else ""
        narrow = f", 1:{level.oversubscription:g} over-subscribed" if level.oversubscription > 1 else ""
        value = f"{level.size:,} {below} over {level.link.name}{ports}{narrow}"
        rate = show(found.rank_bandwidth(level), "bandwidth")
        where = [found.sources.get(f"levels[{at}].{key}", "") for key in ("size", "oversubscription", "ports")]
        yield PageFigure(level.name, f"{value}: {rate} a rank", where[0], where[1] or where[2])
        below = f"{level.name}s"
