"""What is said of an architecture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.cli.members._page import MemberPage, PageFigure

if TYPE_CHECKING:
    from foretell.hardware.architecture import Architecture


def names() -> list[str]:
    from foretell.hardware import members

    return list(members.names("architectures"))


def page(name: str) -> MemberPage:
    from foretell.hardware import members

    found = members.architecture(name.lower() if not name.endswith(".toml") else name)
    every = [members.device(one) for one in members.names("devices")]
    own = ", ".join(device.name for device in every if device.architecture == found.name)
    figures = (PageFigure("devices", own or "none that ships"), *_figures(found))
    return MemberPage("architecture", found.name, found.title, figures, (), (), found)


def _figures(found: Architecture) -> Iterator[PageFigure]:
    where = found.sources.get
    yield PageFigure("library", found.library)
    for unit, one in found.reached.items():
        value = f"{one.products:.0%} of the peak in large products, {one.operands:.0%} of the bandwidth in thin ones"
        yield PageFigure(f"{unit} units", value, one.source)
    for unit, other in found.reached_like.items():
        yield PageFigure(f"{unit} units", f"as those of {other}")
    if found.like:
        yield PageFigure("trainers", f"their constants as on {found.like}, where they have none for it")
    if found.flash3:
        yield PageFigure("attention", "the third generation of fused kernels", where("flash3", ""))
    if not found.tuned_fp32:
        yield PageFigure("convolutions", "no fp32 kernels of its own", where("tuned_fp32", ""))
    if found.instructions != (1.0, 1.0):
        value = "{:g} and {:g} cycles for an NVIDIA multiprocessor's one, in 32 and in 16 bits"
        yield PageFigure("instructions", value.format(*found.instructions), where("instructions", ""))
    for precision, parts in found.layout.items():
        value = ", ".join(f"{part.replace('_', ' ')} {share:.0%}" for part, share in parts.items())
        yield PageFigure(f"layout {precision}", value, where(f"layout.{precision}.forward", ""))
    yield PageFigure("LL128 over", ", ".join(found.ordered_networks), where("ordered_networks", ""))
