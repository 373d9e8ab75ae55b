"""The ladder of fine-tuning on a page."""

from __future__ import annotations

import shlex
from typing import Any, Final

from foretell.cli.table import fit as shortened
from foretell.cli.table import folded, table
from foretell.errors import BadInput
from foretell.oracle.training import HOUR
from foretell.oracle.tuning import Tuning, TuningRung, sentence
from foretell.plan.text import parse
from foretell.units import show_bytes, show_number, show_percent, show_rate


def tuning_page(found: Tuning) -> str:
    """What to take, all rungs, and the commands that go on from there."""
    first = sentence(found, shortened(found.model, 30))
    return "\n\n".join((folded(first), _table(found), *_commands(found)))


def _table(found: Tuning) -> str:
    asked = [name for name in ("work", "hours", "cost") if any(_amounts(one)[name] for one in found.rungs)]
    rows: list[list[str]] = []
    for at, one in enumerate(found.rungs):
        row = ["take" if at == found.taken else "", one.what, f"{one.micro_batch:,}" if one.micro_batch else "-"]
        row += [show_bytes(one.memory_bytes) if one.micro_batch else "refused"]
        row += [show_rate(one.tokens_per_second) if one.fits else "too much" if one.micro_batch else "-"]
        rows.append([*row, *(_amounts(one)[name] or "-" for name in asked)])
    usable = next((show_bytes(one.usable) for one in found.rungs if one.usable), "")
    header = [
        "",
        "way",
        "micro" if "work" in asked else "micro-batch",
        f"of {usable}" if usable else "memory",
        "tokens/s",
        *asked,
    ]
    return table(header, rows, left=(0, 1))


def _amounts(rung: TuningRung) -> dict[str, str]:
    """Of the whole run; empty where it is not asked about, or nothing is padded."""
    hours = show_number(rung.seconds / HOUR) if rung.seconds else ""
    work = show_percent(rung.work) if rung.work else ""
    return {"work": work, "hours": hours, "cost": f"{rung.cost:,.2f}" if rung.cost else ""}


def _commands(found: Tuning) -> list[str]:
    if found.taken < 0:
        return []
    rung = found.rungs[found.taken]
    lines = [folded(f"plan  {rung.plan}, {rung.optimizer}", 6)]
    if rung.kind != "offload":
        lines.append(folded(f"file  {_export(found, rung)}", 6))
    return ["\n".join(lines)]


def _export(found: Tuning, rung: TuningRung) -> str:
    words = ["foretell", "export", found.model, "--on", found.cluster, "--plan", rung.plan, "--batch", str(rung.batch)]
    words += ["--seq", str(rung.seq), "--optimizer", rung.optimizer, "--to", _target(found, rung)]
    return shlex.join(words)


FILES: Final = {"deepspeed": "llama-factory", "torchtune": "torchtune"}
"""Trainers, and whose files they read; all others: TRL's."""


def _target(found: Tuning, rung: TuningRung) -> str:
    """Whose file says this rung: that of the trainer that was asked about, where it can."""
    from foretell.dialects import dialect, shape_of, taken_apart, write

    target = FILES.get(found.trainer, "trl")
    about: dict[str, Any] = {
        "model": found.model,
        "shape": shape_of(found.model),
        "sequence": rung.seq,
        "optimizer": rung.optimizer,
    }
    try:
        write(dialect(target), taken_apart(parse(rung.plan), batch=rung.batch, **about))
    except BadInput:
        return "trl"
    return target
