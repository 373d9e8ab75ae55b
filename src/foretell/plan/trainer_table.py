"""The constants of all trainers as tables, for the documentation."""

from __future__ import annotations

from typing import Any, cast

from foretell.plan.figures import kind_of
from foretell.plan.trainer import CONSTANTS, Trainer, names, trainer
from foretell.units import show_bytes


def name_table() -> str:
    """Every trainer with the one it is based on."""
    lines = ["| trainer | based on | what it is |", "|---|---|---|"]
    for name, summary in names().items():
        found = trainer(name)
        base = found.based_on if found.name == name else found.name
        lines.append(f"| `{name}` | {f'`{base}`' if base else ''} | {summary} |")
    return "\n".join(lines)


def constant_table() -> str:
    """Every constant: what it is for `pytorch`, and for the trainers that say otherwise than their base."""
    lines = ["| constant | `pytorch` | elsewhere |", "|---|---|---|"]
    lines += [f"| `{key}` | {show(trainer('pytorch'), key)} | {_elsewhere(key)} |" for key in CONSTANTS]
    return "\n".join(lines)


def _elsewhere(key: str) -> str:
    """Trainers by the value that they changed a constant to; those based on them have it too."""
    by_value: dict[str, list[str]] = {}
    for found in {trainer(name).name: trainer(name) for name in names()}.values():
        if found.based_on and found.constant(key) != trainer(found.based_on).constant(key):
            by_value.setdefault(show(found, key), []).append(f"`{found.name}`")
    return "; ".join(f"{', '.join(members)} {value}" for value, members in by_value.items())


def show(found: Trainer, key: str) -> str:
    """A constant as a person reads it."""
    return _shown(found.constant(key), kind_of(Trainer, key))


def _shown(value: Any, kind: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        entries = cast("tuple[Any, ...]", value)
        return ", ".join(_entry(entry) for entry in entries) or "none"
    if kind == "time":
        return f"{value * 1e6:g} us" if value < 1e-3 and value else f"{value * 1e3:g} ms"
    if kind == "memory":
        return show_bytes(value)
    return f"{value:g} B" if kind else f"{value:g}" if isinstance(value, float) else str(value)


def _entry(entry: Any) -> str:
    return f"{entry[0]} {entry[1]:g}" if isinstance(entry, tuple) else str(entry)
