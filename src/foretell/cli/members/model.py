"""What is said of a model."""

from __future__ import annotations

from typing import Any

from foretell.cli.members._page import MemberPage, PageFigure, written
from foretell.cli.table import folded
from foretell.units import show_count, show_flops


def names() -> list[str]:
    from foretell.model import zoo

    return list(zoo.names())


def page(text: str) -> MemberPage:
    from foretell.model import source, zoo
    from foretell.model.totals import totals
    from foretell.plan.facts import facts

    graph = source.load(text := source.named(text))
    needs, found = totals(graph), facts(graph)
    lines = [
        PageFigure("parameters", f"{show_count(needs.parameters)} ({needs.parameters:,})"),
        PageFigure("forward", f"{show_flops(needs.forward.matrix)} for a batch of {graph.batch}"),
        PageFigure("layers", f"{found.layers}"),
    ]
    counts = (("heads", found.heads), ("sequence", found.sequence), ("experts", found.experts))
    lines += [PageFigure(name, f"{count:,}") for name, count in counts if count]
    data: dict[str, Any] = {"parameters": needs.parameters, "layers": found.layers, "source": graph.source}
    references: tuple[str, ...] = ()
    title = f"read from {graph.source}"
    texts: tuple[str, ...] = (f"All about it: foretell analyze {text}",)
    if text.partition(":")[0] in zoo.names():
        import msgspec

        _, fields = zoo.parse(text)
        family = type(fields).__module__.rpartition(".")[2]
        values = msgspec.to_builtins(fields)
        lines += [PageFigure(f"{name} =", written(value)) for name, value in values.items()]
        sizes = [name for name, other in zoo.names().items() if type(other) is type(fields)]
        title = f"of the family {family}"
        texts = (folded(f"sizes: {', '.join(sizes)}"), *texts)
        data |= {"family": family, "fields": values, "sizes": sizes}
        references = type(fields).references
    data["references"] = references
    return MemberPage("model", text, title, tuple(lines), texts, references, data)
