"""What is said of a communication library."""

from __future__ import annotations

from foretell.cli.members._page import MemberPage, PageFigure


def names() -> list[str]:
    from foretell.cost.collectives import LIBRARIES

    return list(LIBRARIES)


def page(name: str) -> MemberPage:
    from foretell.cost.collectives import library

    found = library(name.lower())
    figures = [PageFigure(kind, ", ".join(algorithms)) for kind, algorithms in found.algorithms.items()]
    figures.append(PageFigure("protocols", ", ".join(dict.fromkeys(one.name for one in found.protocols))))
    figures += [PageFigure(f"over {network}", f"without {', '.join(off)}") for network, off in found.kept_from.items()]
    figures.append(
        PageFigure("a send", "waits until its receiver asks for it" if found.rendezvous else "leaves at once")
    )
    if found.contends:
        figures.append(PageFigure("in a step", "its kernels compete with those that compute"))
    if found.on_cores:
        figures.append(PageFigure("in a step", "messages between machines take time of the core that computes"))
    data = {
        "name": found.name,
        "summary": found.summary,
        "algorithms": found.algorithms,
        "protocols": list(dict.fromkeys(one.name for one in found.protocols)),
        "rendezvous": found.rendezvous,
        "contends": found.contends,
        "on_cores": found.on_cores,
    }
    return MemberPage("library", found.name, found.summary, tuple(figures), (), (), data)
