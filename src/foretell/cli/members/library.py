"""What is said of a communication library."""

from __future__ import annotations

from foretell.cli.members._page import Figure, Page


def names() -> list[str]:
    from foretell.cost.collectives import LIBRARIES

    return list(LIBRARIES)


def page(name: str) -> Page:
    from foretell.cost.collectives import library

    found = library(name.lower())
    figures = [Figure(kind, ", ".join(algorithms)) for kind, algorithms in found.algorithms.items()]
    figures.append(Figure("protocols", ", ".join(dict.fromkeys(one.name for one in found.protocols))))
    figures += [Figure(f"over {network}", f"without {', '.join(off)}") for network, off in found.kept_from.items()]
    figures.append(Figure("a send", "waits until its receiver asks for it" if found.rendezvous else "leaves at once"))
    if found.contends:
        figures.append(Figure("in a step", "its kernels compete with those that compute"))
    if found.on_cores:
        figures.append(Figure("in a step", "messages between machines take time of the core that computes"))
    data = {
        "name": found.name,
        "summary": found.summary,
        "algorithms": found.algorithms,
        "protocols": list(dict.fromkeys(one.name for one in found.protocols)),
        "rendezvous": found.rendezvous,
        "contends": found.contends,
        "on_cores": found.on_cores,
    }
    return Page("library", found.name, found.summary, tuple(figures), (), (), data)
