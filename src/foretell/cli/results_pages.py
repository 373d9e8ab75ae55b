"""What `foretell results` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foretell.cli.run_pages import page as run_page
from foretell.cli.run_pages import show_seconds
from foretell.cli.table import fit, table
from foretell.records.doubts import impossible
from foretell.units import show_bytes

if TYPE_CHECKING:
    from foretell.records.columns import Row
    from foretell.records.record import Record

DIGITS = 8
"""Letters of a record's digest that tell it from others in a list."""


def page(rows: Sequence[Row]) -> str:
    """A line a record: what it is of, and the figures that matter most."""
    shown = [
        [
            str(row["created"])[:16].replace("T", " "),
            short(str(row["id"])),
            fit(str(row["plan"] or ""), 24),
            str(row["model"] or row["kind"] or ""),
            _possible(row["step_seconds"], show_seconds),
            _possible(row["memory_bytes"], show_bytes),
        ]
        for row in rows
    ]
    lines = table(["when, UTC", "id", "plan", "model", "step", "memory"], shown, left=(0, 1, 2, 3))
    return f"{lines}\n\n{len(rows)} record{'s' if len(rows) != 1 else ''}; `foretell results show ID` shows one"


def _possible(value: Any, show: Callable[[float], str]) -> str:
    if not isinstance(value, float):
        return ""
    return show(value) if value >= 0 else "impossible"


def short(identity: str) -> str:
    """What tells a record apart in a list: the beginning of its digest, or its name where it was given one."""
    kind, _, rest = identity.partition("-")
    moment, _, digest = rest.partition("-")
    return digest[:DIGITS] if kind and moment.isdigit() and digest else identity


def chosen_page(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """The columns that were asked for."""
    shown = [["" if value is None else _written(value) for value in line] for line in lines]
    texts = tuple(at for at in range(len(columns)) if any(isinstance(line[at], str) for line in lines))
    return table(list(columns), shown, left=texts or (0,))


def _written(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def record_page(path: Path, found: Record) -> str:
    """What a record says about itself, and its figures."""
    facts = [("record", str(path)), ("kind", found.kind), ("created", f"{found.created[:19].replace('T', ' ')} UTC")]
    facts += [("foretell", found.foretell), *sorted(found.versions.items())]
    facts += [(name, getattr(found, name)) for name in ("model", "plan", "cluster", "fingerprint")]
    facts += [("taxonomy", _taxonomy(found))]
    head = "\n".join(f"{name:<14}{text}" for name, text in facts if text)
    return f"{head}\n\n{_content(path, found)}"


def _taxonomy(found: Record) -> str:
    """Where a run lies on the axes that tell most; `foretell systems --record` has them all."""
    if found.kind != "run" or not found.plan:
        return ""
    from foretell.plan.text import parse
    from foretell.taxonomy.classify import of_run

    classes = of_run(parse(found.plan), found.content.get("assignment", {}).get("method", ""))
    return "; ".join(", ".join(classes[axis]) for axis in ("parallelism", "optimization", "scheduling", "topology"))


def _content(path: Path, found: Record) -> str:
    if found.kind == "run" and "measurement" in found.content and not any(impossible(msgspec.to_builtins(found))):
        from foretell.runtime.measure import Measurement, check

        try:
            measured = msgspec.convert(found.content["measurement"], Measurement)
            check(measured)
            return run_page(msgspec.structs.replace(measured, record=str(path)))
        except ValueError:
            pass  # of an older version, or spoiled: it is shown as it is
    parts = [[name, _size(value)] for name, value in found.content.items()]
    return table(["content", ""], parts) if parts else "no content"


def _size(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"{len(value)} entries"  # pyright: ignore[reportUnknownArgumentType]
    return _written(value)
