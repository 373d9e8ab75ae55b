"""What is said of a schedule of a pipeline, with a small one drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.cli.members._page import MemberPage, PageFigure
from foretell.cli.table import WIDTH

if TYPE_CHECKING:
    from foretell.plan.schedule import Schedule


SMALL = ((4, 8), (4, 4), (2, 4), (2, 2))
"""Pipelines that are drawn, ranks and micro-batches: the first that the schedule accepts and eighty columns hold."""


def names() -> list[str]:
    from foretell.plan.schedule import schedules

    return list(schedules())


def page(name: str) -> MemberPage:
    from foretell.plan.schedule import find

    found = find(name.lower())
    ranks, count, drawn = _drawn(found)
    chunks = found.least_chunks
    most = "" if found.most_chunks == chunks else ", or more"
    bubble = found.bubble(ranks, count, chunks, 1.0, 1.0, 1.0)
    held = [found.in_flight(rank, ranks, count, chunks) for rank in range(ranks)]
    lines = [
        PageFigure("written", f"pp{ranks}:{found.name} +m{count}"),
        PageFigure("stages", f"{chunks} on each rank{most}"),
        PageFigure("backward", "in two parts, I (inputs) and W (weights)" if found.splits_backward else "whole"),
        PageFigure("flushes", "yes: all see the same weights" if found.flushes else "no: weights are some updates old"),
        PageFigure("bubble", f"{bubble:g} with F = I = W = 1 at pp{ranks} +m{count}; a rank works {3 * count}"),
        PageFigure("in flight", f"{', '.join(f'{one:g}' for one in held)} micro-batches at ranks 0 to {ranks - 1}"),
    ]
    if found.copies > 1:
        lines.append(PageFigure("copies", f"{found.copies} of the weights"))
    data = {
        "name": found.name,
        "summary": found.summary,
        "least_chunks": chunks,
        "most_chunks": found.most_chunks,
        "splits_backward": found.splits_backward,
        "flushes": found.flushes,
        "copies": found.copies,
        "example": {"ranks": ranks, "microbatches": count, "bubble": bubble, "in_flight": held, "drawn": drawn},
        "references": found.references,
    }
    return MemberPage("schedule", found.name, found.summary, tuple(lines), (drawn,), found.references, data)


def _drawn(found: Schedule) -> tuple[int, int, str]:
    """A timeline that the schedule accepts and eighty columns hold; if none is so short, the smallest in pieces."""
    from foretell.plan.schedule import draw

    accepted = [size for size in SMALL if not any(found.refusals(*size, found.least_chunks))]
    timelines = {size: draw(found.name, *size) for size in accepted}
    short = (size for size, text in timelines.items() if max(map(len, text.splitlines())) <= WIDTH)
    ranks, count = next(short, accepted[-1])
    return ranks, count, _pieces(timelines[ranks, count])


HEAD = len("rank 0  ")
PIECE = 72
"""Columns of a piece of a timeline; the slots of a drawn one are three or four wide."""


def _pieces(drawn: str) -> str:
    """A timeline cut into pieces that stand below each other."""
    rows = [(line[:HEAD], line[HEAD:]) for line in drawn.splitlines()]
    longest = max(len(row) for _, row in rows)
    starts = range(0, longest, PIECE)
    return "\n\n".join("\n".join(f"{head}{row[at : at + PIECE]}".rstrip() for head, row in rows) for at in starts)
