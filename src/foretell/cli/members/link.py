"""What is said of a link."""

from __future__ import annotations

from foretell.cli.members._page import MemberPage, PageFigure
from foretell.hardware.quantity import show


def names() -> list[str]:
    from foretell.hardware import members

    return list(members.names("links"))


def page(name: str) -> MemberPage:
    from foretell.hardware import members

    found = members.link(name.lower() if not name.endswith(".toml") else name)
    where = found.sources.get
    whose = "of a port" if found.per_port else "of a device"
    lines = [
        PageFigure("kind", found.kind),
        PageFigure("bandwidth", f"{show(found.bandwidth, 'bandwidth')} {whose}, one way", where("bandwidth", "")),
        PageFigure("latency", show(found.latency_seconds, "time"), where("latency", "")),
    ]
    if found.hop_seconds:
        lines.append(PageFigure("fabric hop", show(found.hop_seconds, "time"), where("hop", "")))
    if found.ceiling < found.bandwidth:
        value = f"{show(found.ceiling, 'bandwidth')} at most, by software"
        lines.append(PageFigure("ceiling", value, where("ceiling", "")))
    for key, share in found.efficiency.items():
        kind, _, limit = key.partition("@")
        among = f" among at most {limit} ranks" if limit else ""
        value = f"{share:.0%} of the bandwidth reached{among}"
        lines.append(PageFigure(kind.replace("_", "-"), value, where(f"efficiency.{key}", "")))
    lines.append(
        PageFigure("switched", "every pair at full rate" if found.switched else "by the wires that join a pair")
    )
    if found.multicast:
        lines.append(PageFigure("multicast", "the switch reduces and multicasts (NVLS)"))
    return MemberPage("link", found.name, found.title, tuple(lines), (), (), found)
