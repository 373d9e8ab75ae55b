"""The digits of a tree: every case of a list answered, floats as `float.hex()`, all else as it is.

python tests/replay/run.py CASES OUT [--without-numba]    PYTHONPATH names the tree whose digits are wanted

This is the one place that knows where a tree keeps its engine: a change that moves or renames something keeps this
file true, and the cases and the form of the digits stay. So the two trees of a replay each run their own copy.

A line of OUT is `[case, {kind: {quantity: value}}]`. Kinds are what moves together: a step, a breakdown, the events of
a simulation.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

if "--without-numba" in sys.argv:
    sys.modules["numba"] = None  # type: ignore[assignment]  # as on a machine that does not have it
if __name__ == "__main__":
    os.environ["FORETELL_RECORDS"] = tempfile.mkdtemp(prefix="replay-records-")  # nobody's calibrations

import msgspec
from click.testing import CliRunner

import foretell
from foretell.cli.command import cli
from foretell.compiling import available
from foretell.cost.price import priced
from foretell.errors import ForetellError
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.resize import ANY, with_samples
from foretell.model.source import load
from foretell.oracle.predict import Prediction, predict
from foretell.plan.fitness import refusals
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from foretell.report.sections import over_time
from foretell.timeline import engine, unroll
from foretell.timeline.memory_timeline import memory_timeline
from foretell.timeline.peak_breakdown import alive
from foretell.timeline.simulate import Simulated, simulate
from foretell.validation import published
from foretell.validation.study import MeasuredRun, read

Case = dict[str, Any]
Digits = dict[str, dict[str, Any]]


def digits(cases: Iterable[Case]) -> Iterator[tuple[str, Digits]]:
    """Each case with its digits."""
    for case in cases:
        if case["ask"] == "study":
            yield from ((name, answered(_scored, row)) for name, row in _rows(case["every"]))
        else:
            yield case["id"], answered(ANSWERS[case["ask"]], case)


def answered(answer: Callable[[Any], Digits], asked: Any) -> Digits:
    """What is said; a problem that a person would be told is a text among it."""
    try:
        found = answer(asked)
    except ForetellError as problem:
        found = {"problem": {"text": str(problem)}}
    except Exception as problem:  # told apart: where both trees crash nothing was compared
        found = {"crash": {"text": f"{type(problem).__name__}: {problem}"}}
    return {kind: {name: exact(value) for name, value in own.items()} for kind, own in found.items()}


def exact(value: Any) -> Any:
    """A float to its last bit; what is no number as it is."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    return float(value).hex()


def compile_kernels() -> None:
    """As in a process that has searched: from now on everything goes through compiled kernels."""
    if available():
        engine.kernels(fast=True)
        unroll.load()


# predictions


def _prediction(found: Prediction) -> Digits:
    used = found.memory
    return {
        "predict.step": {"step_seconds": found.step_seconds},
        "predict.interval": {"low": found.interval[0], "high": found.interval[1], **_named("band", found.band)},
        "predict.memory": {
            "allocated": used.allocated,
            "reserved": used.reserved,
            "device": used.device,
            "peak_moment": used.peak_moment,
            "fits": found.fits,
            "usable": found.usable,
        },
        "predict.memory by stage": _named("", dict(enumerate(used.by_stage))),
        "predict.memory by kind": _named("", used.by_kind),
        "predict.breakdown": _named("", found.breakdown),
        "predict.rates": {
            "samples_per_second": found.samples_per_second,
            "tokens_per_second": found.tokens_per_second,
            "model_flops": found.model_flops,
            "utilisation": found.utilisation,
        },
        "predict.bottlenecks": {f"{at}": f"{one.kind}: {one.name}" for at, one in enumerate(found.bottlenecks)},
        "predict.words": {
            "plan": found.plan,
            "bottlenecks": digest(msgspec.to_builtins(found.bottlenecks)),
            "notes": digest(found.notes),
            "provenance": digest(found.provenance),
            "narrower": digest(found.narrower),
            "accuracy": digest(msgspec.to_builtins(found.accuracy)),
        },
    }


def _rows(every: int) -> Iterator[tuple[str, MeasuredRun]]:
    """Every so manyth row of every study, those of one model together: each is built once."""
    paths = (*published.files(), *published.own_files())
    rows = [(f"study/{path.stem}/{at}", row) for path in paths for at, row in enumerate(read(path).rows)]
    yield from sorted(rows[::every], key=lambda named: (named[1].model, _samples(named[1])))


def _samples(row: MeasuredRun) -> int:
    return max(1, row.job.batch // row.plan.microbatches)


def _scored(row: MeasuredRun) -> Digits:
    """A row of a study, as it is scored."""
    setting = Setting(_sized(row.model, _samples(row)), row.job, row.plan, trainer(row.trainer))
    cluster = catalog.cluster(row.cluster)
    refusal = next(refusals(setting, cluster), None)
    own: Digits = {"study.row": {"id": row.id, "measured": digest(msgspec.to_builtins((row.step_seconds, row.memory)))}}
    if refusal is not None:
        return own | {"refusals": {"rule": refusal.rule}}
    return own | _prediction(predict(setting, cluster))


def _predict(case: Case) -> Digits:
    return _prediction(predict(*_asked(case)))


def _refusal(case: Case) -> Digits:
    told = list(refusals(*_asked(case)))
    return {
        "refusals": {str(at): one.rule for at, one in enumerate(told)},
        "refusals.words": {str(at): f"{one.why} / {one.way_out}" for at, one in enumerate(told)},
    }


@functools.lru_cache(maxsize=4)
def _model(model: str) -> Graph:
    return load(model, ANY)


@functools.lru_cache(maxsize=16)
def _sized(model: str, samples: int) -> Graph:
    return with_samples(_model(model), samples)


def _asked(case: Case) -> tuple[Setting, Cluster]:
    plan = parse(case["plan"])
    graph = _sized(case["model"], max(1, case["batch"] // plan.microbatches))
    job = make_job(case["batch"], trainer=case["trainer"], optimizer=case["optimizer"])
    return Setting(graph, job, plan, trainer(case["trainer"])), catalog.cluster(case["cluster"])


# searches


SHOWN = 40
"""Plans of a search that are compared one by one, spread over all of them; of all there are sums."""


def _search(case: Case) -> Digits:
    said = dict(case["said"])
    batch = None if "batch_per_rank" in said else case["batch"]
    found = foretell.plan(case["model"], case["cluster"], batch, trainer=case["trainer"], exhaustive=True, **said)
    rows = list(found.plans.rows())
    by_name = sorted(rows)[:: max(1, len(rows) // SHOWN)]
    return {
        "search.top": _candidates(found.top),
        "search.pareto": _candidates(found.pareto),
        "search.nearest": _candidates([found.nearest] if found.nearest else []),
        "search.counts": {
            "candidates": found.candidates,
            "evaluated": found.evaluated,
            "fitting": found.fitting,
            "local_programs": found.local_programs,
            "ranks": found.ranks,
            "batch": found.batch,
            "capacity": found.capacity,
        },
        "search.refused": _named("", found.refused),
        "search.plans": {
            "texts": digest(sorted(row[0] for row in rows)),
            "seconds": math.fsum(row[1] for row in rows),
            "bytes": math.fsum(row[2] for row in rows),
            **{f"{row[0]} seconds": row[1] for row in by_name},
            **{f"{row[0]} bytes": row[2] for row in by_name},
        },
        "search.finer": {
            f"{at} {name}": value
            for at, one in enumerate(found.finer)
            for name, value in (
                ("what", one.what),
                ("tried", one.tried),
                ("plan", one.plan),
                ("step_seconds", one.step_seconds),
                ("memory_bytes", one.memory_bytes),
                ("least_seconds", one.least_seconds),
            )
        },
    }


def _candidates(found: Iterable[Any]) -> dict[str, Any]:
    return {
        f"{at} {name}": getattr(one, name)
        for at, one in enumerate(found)
        for name in ("plan", "step_seconds", "memory_bytes")
    }


# timelines and programs


def _simulate(case: Case) -> Digits:
    setting, cluster = _asked(case)
    program = expand(lower(setting))
    return _played("", simulate(priced(setting, cluster), program)) | _played(
        "many steps: ", simulate(priced(setting, cluster), program, ahead=True, joined=True)
    )


def _played(name: str, found: Simulated) -> Digits:
    streams: dict[str, float] = {}
    for event in found.events:
        key = f"{event.kind} {event.stream} {event.category}"
        streams[key] = streams.get(key, 0.0) + event.seconds
    events = {
        "count": len(found.events),
        "names": digest([(event.kind, event.stream, event.name, event.category) for event in found.events]),
        "digest": digest([[exact(value) for value in event[:8]] for event in found.events]),
    }
    return {
        f"simulate.{name}step": {"step_seconds": found.step_seconds},
        f"simulate.{name}events": events | _named("", streams),
    }


def _program(case: Case) -> Digits:
    setting, _ = _asked(case)
    program = expand(lower(setting))
    parts = {name: digest(msgspec.to_builtins(getattr(program, name))) for name in ("axes", "stages", "kinds", "notes")}
    return {
        "program.digest": parts,
        "program.traffic": _traffic(program),
        "program.work": _work(program),
        "program.memory": {
            f"{at} {name}": value
            for at, stage in enumerate(program.stages)
            for name, value in msgspec.structs.asdict(stage.memory).items()
        },
    }


def _memory(case: Case) -> Digits:
    """What is shown of memory besides its peak: what is alive then, and the chart over time."""
    setting, cluster = _asked(case)
    plan, found = priced(setting, cluster), predict(setting, cluster)
    held = memory_timeline(plan, cluster)
    moments, resting = over_time(found, held)
    return {
        "memory_chart": {
            "resting": resting,
            "rank": "every rank" if held.ranks == 1 else f"ranks of place {held.rank} on the pipeline, the fullest",
            **{f"{at} {moment.name}": moment.bytes for at, moment in enumerate(moments)},
        },
        "alive": {
            f"{at} {name}": value
            for at, one in enumerate(alive(plan, cluster, found.memory))
            for name, value in (("name", one.name), ("kind", one.kind), ("count", one.count), ("bytes", one.bytes))
        },
    }


def _traffic(program: ExpandedProgram) -> dict[str, Any]:
    """Messages of each kind of rank: how many, and bytes."""
    return {
        f"{place} {key.kind} {'+'.join(key.axes)} of {key.ranks}: {key.what}, {name}": value
        for place, kind in enumerate(program.kinds)
        for key, total in program.traffic(kind).items()
        for name, value in (("count", total.count), ("payload", total.payload), ("sent", total.sent))
    }


def _work(program: ExpandedProgram) -> dict[str, Any]:
    """What each kind of rank computes."""
    found: dict[str, Any] = {}
    for place, kind in enumerate(program.kinds):
        found[f"{place} ranks"] = kind.ranks
        found[f"{place} slots"] = len(kind.slots)
        for action, times in program.computations(kind):
            part = action.cost * times
            for name in ("matrix", "vector", "read", "written"):
                key = f"{place} {name}"
                found[key] = found.get(key, 0.0) + float(getattr(part, name, 0.0))
    return found


# commands

UNSTEADY = ("seconds", "plans_per_second")
"""How long a search took: `plan` says it, and it is never twice the same."""


def _command(case: Case) -> Digits:
    """The JSON of a command, its exit code, and each value by its place in the answer."""
    asked = shlex.split(case["text"])
    done = CliRunner().invoke(cli, [*asked, "--json"])
    kind = f"command.{asked[0]}"
    if isinstance(done.exception, ForetellError):
        return {f"{kind}.words": {"refused": str(done.exception)}}
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    found = dict(_leaves(json.loads(done.stdout), ""))
    if asked[0] == "plan":
        found = {place: value for place, value in found.items() if place.rpartition(".")[2] not in UNSTEADY}
    words = {place: value for place, value in found.items() if isinstance(value, str)}
    numbers = {place: value for place, value in found.items() if place not in words}
    return {kind: {"exit code": done.exit_code, **numbers}, f"{kind}.words": words}


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every number and text of an answer with its place: `top[0].plan`."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        yield f"{place} count", len(value)
        for at, one in enumerate(value):
            yield from _leaves(one, f"{place}[{at}]")
    else:
        yield place, value


# forms

DIGEST = "digest:"


def _named(name: str, values: Mapping[Any, Any]) -> dict[str, Any]:
    return {f"{name} {key}".strip(): value for key, value in values.items()}


def digest(value: Any) -> str:
    """A short name of a value; floats count to the last bit."""
    return f"{DIGEST}{hashlib.sha256(msgspec.json.encode(value, order='deterministic')).hexdigest()[:16]}"


ANSWERS: dict[str, Callable[[Case], Digits]] = {
    "predict": _predict,
    "refusal": _refusal,
    "search": _search,
    "simulate": _simulate,
    "program": _program,
    "memory": _memory,
    "command": _command,
}


def in_order(cases: list[Case]) -> list[Case]:
    """Those of one model together: each model is built once."""
    return sorted(cases, key=lambda case: (case.get("model", ""), case["id"]))


def main(cases_file: str, out: str) -> None:
    tree = Path(os.environ["PYTHONPATH"])
    if not Path(foretell.__file__).is_relative_to(tree):  # an installed copy that wins would compare a tree with itself
        raise SystemExit(f"{foretell.__file__} is not of {tree}")
    if "--without-numba" not in sys.argv:
        compile_kernels()
    cases = json.loads(Path(cases_file).read_text())
    with Path(out).open("w") as file:
        for name, found in digits(in_order(cases)):
            file.write(json.dumps([name, found]) + "\n")


if __name__ == "__main__":
    main(*[word for word in sys.argv[1:] if not word.startswith("--")])
