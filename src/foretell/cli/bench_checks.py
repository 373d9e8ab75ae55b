"""What `foretell bench` refuses before anything starts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from foretell.errors import BadInput, unknown

if TYPE_CHECKING:
    from foretell.bench.question import BenchQuestion

LEAST = {"seeds": 1, "threads": 1, "batch": 1, "steps": 1, "warmup": 0, "look": 0}
"""Of numbers that are given; not given they are 0 or -1, and mean what the pair says."""

MOST_SEEDS = 1_000
MOST = 10**9
"""Of any other number: more is a slip of the hand."""

MOST_RANKS = 64
RANKS_PER_CORE = 4
"""On one machine: so many, or so many for each core."""

TEXTS = ("engines", "pairs", "ranks", "model", "task", "batch_rule", "optimizer", "out")
CHOSEN = ("engines", "pairs", "ranks", "model", "task", "batch_rule", "optimizer", "rate", "scaled", "device", *LEAST)
"""What a quick comparison has chosen already."""

FLAGS = {"engines": "engine", "pairs": "pair", "batch_rule": "batch-rule", "scaled": "scale-rate"}


def check(options: dict[str, Any]) -> None:
    """Refuse numbers that are none, and what --quick would not heed."""
    given = _given()
    if options["quick"] and (beside := [_flag(name) for name in CHOSEN if name in given]):
        what = f"--quick has its own {', '.join(beside)}"
        raise BadInput(what, where="--quick", fix="--quick alone, or the same without --quick")
    for name in TEXTS:
        if name in given and not any(_parts(options[name])):
            raise BadInput(f"{_flag(name)} is empty", where=_flag(name), fix=f"leave {_flag(name)} out, or give a name")
    for name, least in LEAST.items():
        most = MOST_SEEDS if name == "seeds" else MOST
        if name in given and not least <= options[name] <= most:
            raise BadInput(
                f"{_flag(name)} {options[name]}", where=_flag(name), fix=f"{least} or more, at most {most:,}"
            )
    for name, usual in (("rate", "0.001"), ("within", "9.5")):
        if name in given and not 0.0 < options[name] < math.inf:
            raise BadInput(f"{_flag(name)} {options[name]:g}", where=_flag(name), fix=f"more than 0: {usual}")


def check_hosts(options: dict[str, Any]) -> None:
    """Refuse hosts for what has its own ranks, and a place to meet for one host."""
    nodes, meeting = options["nnodes"] is not None, options["rendezvous"] is not None
    if options["quick"] and (nodes or meeting):
        what = f"--quick compares on this machine alone, without {'--nnodes' if nodes else '--rendezvous'}"
        raise BadInput(what, where="--quick", fix="--quick alone, or --ranks 1..8 --nnodes 2 --rendezvous HOST:PORT")
    if meeting and not nodes:
        fix = "--nnodes N beside it, or neither on one machine"
        raise BadInput("--rendezvous without --nnodes", where="--rendezvous", fix=fix)


def check_ranks(ranks: Sequence[int], cores: int, seats: int = 0) -> None:
    """Refuse what would bring a machine down, and ranks that nobody started, where somebody starts them."""
    if seats and max(ranks) > seats:
        what = f"{max(ranks)} ranks, and {seats} processes were started"
        raise BadInput(what, where="--ranks", fix=f"at most {seats}, or more processes")
    if seats:
        return
    most = max(MOST_RANKS, RANKS_PER_CORE * cores)
    if max(ranks) > most:
        what = f"{max(ranks):,} ranks are processes of this one machine, which has {cores} cores"
        raise BadInput(what, where="--ranks", fix=f"at most {most}; for more: foretell predict")


def check_names(options: dict[str, Any], questions: Sequence[BenchQuestion]) -> None:
    """Refuse a model, a task, an optimizer and a batch rule that nobody knows."""
    from foretell.bench.question import BATCH_RULES
    from foretell.model.optimizer import OPTIMIZERS
    from foretell.model.source import load

    for name, known in (("optimizer", OPTIMIZERS), ("batch_rule", BATCH_RULES)):
        if options[name] and options[name] not in known:
            raise unknown(name.replace("_", " "), options[name], tuple(known))
    if options["model"]:
        load(options["model"], batch=questions[0].batch_of_step)
    if options["task"]:
        with contextlib.suppress(ModuleNotFoundError):  # without torch every row says what to install
            from foretell.runtime.tasks import task

            task(options["task"])


def _given() -> set[str]:
    """Names of options that a person wrote."""
    here = click.get_current_context()
    return {name for name in here.params if here.get_parameter_source(name) is not ParameterSource.DEFAULT}


def _flag(name: str) -> str:
    return f"--{FLAGS.get(name, name)}"


def _parts(given: str | Sequence[str]) -> list[str]:
    """Words of a text, or of texts."""
    texts = [given] if isinstance(given, str) else given
    return [part.strip() for text in texts for part in text.split(",")]
