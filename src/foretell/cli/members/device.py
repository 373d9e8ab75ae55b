"""What is said of a device."""

from __future__ import annotations

from foretell.cli.members._page import MemberPage, PageFigure
from foretell.hardware.quantity import show
from foretell.units import show_bytes


def names() -> list[str]:
    from foretell.hardware import members

    return [*members.names("devices"), *members.aliases()]


def page(name: str) -> MemberPage:
    from foretell.hardware import members
    from foretell.hardware.cluster import PRECISIONS

    found = members.device(name.lower() if not name.endswith(".toml") else name)
    where = found.sources.get
    lines = [
        PageFigure("architecture", found.architecture),
        PageFigure("memory", show(found.memory_bytes, "memory"), where("memory", "")),
        PageFigure("bandwidth", show(found.memory_bandwidth, "bandwidth"), where("memory_bandwidth", "")),
        PageFigure("cache", show_bytes(found.cache_bytes), where("cache", "")),
        PageFigure("multiprocessors", f"{found.multiprocessors}", where("multiprocessors", "")),
        PageFigure("clock", show(found.clock_hz, "frequency"), where("clock", "")),
        PageFigure("power", show(found.power_watts, "power"), where("power", "")),
        PageFigure("launch", show(found.launch_seconds, "time"), where("launch", "")),
    ]
    for title, key, rates in (("matrix", "peak", found.peak), ("vector", "vector", found.vector)):
        for precision in sorted(rates, key=PRECISIONS.index):
            value = show(rates[precision], "rate")
            lines.append(PageFigure(f"{title} {precision}", value, where(f"{key}.{precision}", "")))
    for unit, one in found.reached.items():
        lines.append(PageFigure(f"{unit} units", f"{one.products:.0%} of the peak in large products", one.source))
        thin = f"{one.operands:.0%} of the bandwidth in thin ones"
        lines.append(PageFigure(f"{unit} units", thin, where(f"reached.{unit}.operands", one.source)))
    for precision, share in found.shares.items():
        lines.append(
            PageFigure(f"layers {precision}", f"{share:.0%} of the peak", where(f"reached.shares.{precision}", ""))
        )
    node = found.node
    lines.append(PageFigure("usual node", f"{node.size} over {node.link}", where("node.size", "")))
    lines.append(PageFigure("network", f"{node.ports} x {node.network} a node", where("node.ports", "")))
    if node.domain > node.size:
        lines.append(PageFigure("reach", f"{node.link} joins {node.domain} devices", where("node.domain", "")))
    lines.append(PageFigure("host link", found.host_link))
    other = sorted(alias for alias, meant in members.aliases().items() if meant == found.name)
    if other:
        lines.append(PageFigure("also called", ", ".join(other)))
    return MemberPage("device", found.name, found.title, tuple(lines), (), (), found)
