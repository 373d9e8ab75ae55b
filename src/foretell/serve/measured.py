"""What was measured, handed in as a file: the record of a run, or a trace of one (`foretell run --trace`, PyTorch's).

Such a file may come from anybody. Numbers and names are taken from it; nothing in it is opened, loaded or run, and the
question that was run is asked like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta

from foretell.cost.memory import MemoryUse
from foretell.errors import BadInput
from foretell.serve import uploads
from foretell.timeline.observation import Observation
from foretell.units import show_seconds

Upload: TypeAlias = Annotated[
    str, Meta(pattern=r"^uploaded:[0-9a-f]{24}$", description="what /api/models answered for the file")
]
PerhapsUpload: TypeAlias = Annotated[str, Meta(pattern=r"^(uploaded:[0-9a-f]{24})?$", description="empty: none")]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
Bytes: TypeAlias = Annotated[float, Meta(ge=0, le=1e18)]
Word: TypeAlias = Annotated[str, Meta(max_length=1000)]

PREDICTED: Final = "predicted, "
"""How processes of a prediction begin that lie in a trace beside measured ones."""

MOST_EVENTS: Final = 500_000


class SeenMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says was measured."""

    name: str  # what questions call it
    kind: Literal["run", "trace"]
    said: str  # in a line
    step_seconds: float = 0.0  # 0: it does not say


class Spread(msgspec.Struct, frozen=True):
    """How far steps lie apart."""

    p10: Seconds
    p90: Seconds
    n: Annotated[int, Meta(ge=1)]


class RunMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement in the record of a run, as far as it is shown."""

    model: Word
    plan: Word
    batch: int
    ranks: Annotated[int, Meta(ge=1, le=10**7)]
    step_seconds: Annotated[float, Meta(gt=0, le=1e9)]
    memory_bytes: Bytes
    breakdown: Annotated[dict[Word, Seconds], Meta(max_length=50)]
    samples: Spread
    by_rank: Annotated[dict[Word, list[Seconds]], Meta(max_length=50)] = {}  # median seconds of each phase

    @property
    def observation(self) -> Observation:
        """In the shape of a prediction."""
        size = self.memory_bytes
        return Observation(self.step_seconds, size, MemoryUse(size, size, size, (size,), {}, ""), self.breakdown)

    @property
    def said(self) -> str:
        steps = f"{self.samples.n} steps of {show_seconds(self.samples.p10)} to {show_seconds(self.samples.p90)}"
        return f"A run of {self.model} under {self.plan or 'one rank'}: {steps}."


def content_of(name: str) -> Any:
    """A file as JSON; None where it is none."""
    try:
        return msgspec.json.decode(uploads.path(name).read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def seen(name: str, content: Any) -> SeenMeasurement | None:
    """What was measured, if that is what a file says."""
    if _kind(content) == "run":
        found = _ran(content)
        return SeenMeasurement(name=name, kind="run", said=found.said, step_seconds=found.step_seconds)
    events = _events(content)
    if events is None:
        return None
    processes = len({str(event["pid"]) for event in _measured(events)})
    return SeenMeasurement(name=name, kind="trace", said=f"A trace of {processes} processes.")


def ran(name: str) -> RunMeasurement:
    """The run that a file is the record of."""
    content = content_of(name)
    if _kind(content) != "run":
        raise BadInput("not the record of a run", where="measured", fix="a file that `foretell run` wrote")
    return _ran(content)


def _ran(content: Any) -> RunMeasurement:
    try:
        return msgspec.convert(content["content"]["measurement"], RunMeasurement)
    except (KeyError, TypeError, msgspec.ValidationError) as problem:
        what = f"the record of a run that is not whole: {problem}"
        raise BadInput(what, where="the file", fix="a file that `foretell run` wrote") from None


def _kind(content: Any) -> str:
    kind = cast("dict[str, Any]", content).get("kind") if isinstance(content, dict) else ""
    return kind if isinstance(kind, str) else ""


# events of a trace


def processes(name: str, first: int) -> list[dict[str, Any]]:
    """What was measured as events of a trace: processes are counted from `first` on, and time begins at 0."""
    content = content_of(name)
    events = list(_phases(_ran(content))) if _kind(content) == "run" else _events(content)
    if events is None:
        raise BadInput("neither the record of a run nor a trace", where="measured", fix="`foretell run --trace FILE`")
    return list(_counted(_measured(events), first))


def _phases(found: RunMeasurement) -> Iterator[dict[str, Any]]:
    """The phases of each rank, one after the other: medians, as a record has them."""
    ranks = max((len(seconds) for seconds in found.by_rank.values()), default=0)
    for rank in range(ranks):
        yield _metadata("process_name", rank, f"rank {rank}")
        yield _metadata("thread_name", rank, f"phases, medians of {found.samples.n} steps")
        begin = 0.0
        for phase, seconds in found.by_rank.items():
            own = seconds[rank] if rank < len(seconds) else 0.0
            span = {"ts": 1e6 * begin, "dur": 1e6 * own}
            yield {"name": phase, "cat": "phase", "ph": "X", "pid": rank, "tid": 0, **span}
            begin += own


def _metadata(what: str, process: int, said: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": 0, "args": {"name": said}}


def _events(content: Any) -> list[dict[str, Any]] | None:
    """The events of a trace in the Trace Event Format: a list, or an object that has one."""
    found: Any = cast("dict[str, Any]", content).get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list) or not found:
        return None
    events = [event for event in cast("list[Any]", found) if _is_event(event)]
    if len(events) > MOST_EVENTS:
        what = f"a trace of {len(events):,} events"
        raise BadInput(what, where="the file", fix=f"one step, of fewer ranks: at most {MOST_EVENTS:,} events")
    return events or None


def _is_event(event: Any) -> bool:
    if not isinstance(event, dict):
        return False
    own = cast("dict[str, Any]", event)
    timed = isinstance(own.get("ts"), int | float) or own.get("ph") == "M"
    return timed and isinstance(own.get("ph"), str) and isinstance(own.get("pid"), int | str)


def _measured(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of processes that are not said to be predicted."""
    told = {str(one["pid"]) for one in events if _process_name(one).startswith(PREDICTED)}
    return [one for one in events if str(one["pid"]) not in told]


def _process_name(event: dict[str, Any]) -> str:
    said = event.get("args") if event.get("name") == "process_name" else None
    return str(cast("dict[str, Any]", said).get("name", "")) if isinstance(said, dict) else ""


def _counted(events: Sequence[dict[str, Any]], first: int) -> Iterator[dict[str, Any]]:
    numbers: dict[str, int] = {}
    begin = min((event["ts"] for event in events if event["ph"] != "M"), default=0.0)
    for event in events:
        process = numbers.setdefault(str(event["pid"]), first + len(numbers))
        moved = {**event, "pid": process}
        if event["ph"] != "M":
            moved["ts"] = event["ts"] - begin
        elif event.get("name") == "process_sort_index":
            moved["args"] = {"sort_index": process}
        elif name := _process_name(event):
            moved["args"] = {"name": f"measured: {name.removeprefix('measured, ')}"}
        yield moved
