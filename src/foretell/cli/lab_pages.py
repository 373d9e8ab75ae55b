"""The lab's answers as pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.cli.table import table
from foretell.hardware.quantity import show
from foretell.lab.crossover import Crossover
from foretell.lab.measure import CollectiveRow, orders, summary
from foretell.lab.stolen import told
from foretell.units import show_bytes

if TYPE_CHECKING:
    from foretell.lab.bench import Attained
    from foretell.lab.formula import Software


def selftest(found: Sequence[Attained], takes: Software, stolen: float) -> str:
    """Pairs of hosts: asked for, and attained."""
    rows = [
        [
            f"{one.pair[0]} - {one.pair[1]}",
            _bits(one.asked_rate),
            _bits(one.rate),
            f"{one.rate / one.asked_rate - 1:+.1%}",
            show(one.asked_delay, "time"),
            show(one.delay, "time"),
        ]
        for one in found
    ]
    further = f", and a core is busy with it for {show(takes.beside, 'time')}" if takes.beside else ""
    lines = [
        table(["hosts", "payload", "attained", "", "delay", "attained"], rows),
        "",
        f"A message takes {show(takes.message, 'time')} beside its delay and its bytes{further}.",
        f"A collective takes {show(takes.start, 'time')} to begin.",
        *filter(None, [told(stolen)]),
    ]
    return "\n".join(lines)


def measured(rows: Sequence[CollectiveRow]) -> str:
    """Every collective beside its formula, then which is fastest."""
    header = ["collective", "by", "tensor", "messages", "sent", "formula", "measured", "error"]
    body = [
        [
            row.kind,
            row.algorithm,
            show_bytes(row.size),
            str(row.messages),
            show_bytes(row.bytes),
            _ms(row.formula),
            _ms(row.seconds),
            f"{row.error:+.1%}",
        ]
        for row in sorted(rows, key=lambda row: (row.kind, row.size, row.algorithm))
    ]
    short = [
        [one.kind, one.algorithm, _share(one.small), _share(one.large), f"{one.worst:+.1%}"] for one in summary(rows)
    ]
    best = [[one.kind, show_bytes(one.size), one.predicted, one.fastest, f"{one.regret:.1%}"] for one in orders(rows)]
    return "\n\n".join(
        [
            table(header, body, left=(0, 1)),
            table(["mean error", "by", "small", "large", "largest"], short, left=(0, 1)),
            table(["fastest", "tensor", "by formula", "measured", "lost"], best, left=(0, 2, 3)),
            *filter(None, [told(max(row.stolen for row in rows))]),
        ]
    )


def crossovers(found: Sequence[Crossover]) -> str:
    """Pairs of algorithms that change places, and at which size."""
    if not found:
        return "None of these algorithms is faster for small tensors and slower for large ones."
    header = ["collective", "small", "large", "formulas cross at", "measured", "error"]
    body = [
        [
            one.kind,
            one.below,
            one.above,
            show_bytes(round(one.formula)),
            show_bytes(round(one.measured)) if one.measured else "not seen",
            f"{one.error:+.0%}" if one.error is not None else "",
        ]
        for one in sorted(found, key=lambda one: (one.kind, one.formula))
    ]
    return table(header, body, left=(0, 1, 2))


def _bits(rate: float) -> str:
    return f"{rate * 8 / 1e6:.4g} Mb/s"


def _share(error: float | None) -> str:
    return "" if error is None else f"{error:.1%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
