"""What is said of a way to join the units of clusters."""

from __future__ import annotations

from foretell.cli.members._page import MemberPage, PageFigure


def names() -> list[str]:
    from foretell.hardware.topology import TOPOLOGIES

    return list(TOPOLOGIES)


def page(name: str) -> MemberPage:
    from foretell.hardware.topology import fabric_topology

    found = fabric_topology(name.lower())
    figures = (PageFigure("written", f'topology = "{name.lower()}" in a cluster file'),)
    data = {"name": name.lower(), "summary": found.summary, "references": found.references}
    return MemberPage("fabric", name.lower(), found.summary, figures, (), found.references, data)
