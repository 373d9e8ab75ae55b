"""Records as a table: a column has a name, a type, and the places in a record where its value is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

from foretell.errors import BadInput, unknown

Place: TypeAlias = tuple[str | int, ...]
"""Keys from the record inwards; a number counts the items of a list, -1 is the last one."""

Value: TypeAlias = str | float | None
Row: TypeAlias = dict[str, Value]


class Column(NamedTuple):
    """Texts, or numbers; None where a record has nothing of the kind in any of the places."""

    numeric: bool
    places: tuple[Place, ...]
    meaning: str

    def of(self, record: Mapping[str, Any]) -> Value:
        """The value of a record, as plain data."""
        for place in self.places:
            found = _at(record, place)
            if not self.numeric and isinstance(found, str):
                return found
            if self.numeric and isinstance(found, int | float) and not isinstance(found, bool):
                return float(found)
        return None


def _at(record: Any, place: Place) -> Any:
    for key in place:
        try:
            record = record[key] if isinstance(key, int) else cast("Mapping[str, Any]", record).get(key)
        except (AttributeError, IndexError, KeyError, TypeError):
            return None
    return record


def _text(meaning: str, *places: Place) -> Column:
    return Column(False, places, meaning)


def _number(meaning: str, *places: Place) -> Column:
    return Column(True, places, meaning)


def _observed(meaning: str, *keys: str | int) -> Column:
    """A figure of an observation: of a run that was measured, of a prediction, of a line of a sweep."""
    return _number(meaning, ("content", "measurement", *keys), ("content", *keys), ("content", "row", *keys))


COLUMNS: Final[dict[str, Column]] = {
    "kind": _text("run, failed-run, prediction, calibration, profile or answer (of a sweep)", ("kind",)),
    "created": _text("when, UTC", ("created",)),
    "model": _text("what was trained or asked about", ("model",), ("content", "model")),
    "plan": _text("axes and policies", ("plan",)),
    "cluster": _text("where", ("cluster",)),
    "device": _text("what computed", ("content", "machine", "device")),
    "trainer": _text("the software", ("content", "measurement", "trainer"), ("content", "row", "trainer")),
    "task": _text("the data of a run", ("content", "assignment", "task")),
    "ranks": _observed("processes with a device each", "ranks"),
    "batch": _observed("samples of a step, of all ranks", "batch"),
    "step_seconds": _observed("the median step", "step_seconds"),
    "p10": _observed("one step of ten is shorter", "samples", "p10"),
    "p90": _observed("one step of ten is longer", "samples", "p90"),
    "memory_bytes": _observed("of the fullest rank", "memory_bytes"),
    "forward": _observed("seconds of a step", "breakdown", "forward"),
    "backward": _observed("seconds of a step", "breakdown", "backward"),
    "optimizer": _observed("seconds of a step", "breakdown", "optimizer"),
    "loss": _observed("of the last step", "losses", -1),
    "metric": _observed("of the last validation", "validation", -1, "metric"),
    "torch": _text("its version", ("versions", "torch")),
    "foretell": _text("its version", ("foretell",)),
    "fingerprint": _text("of the model's graph", ("fingerprint",)),
}
"""Beside these every record has an `id`: the name of its file, without the ending."""

IDENTITY: Final = "id"


def row(identity: str, record: Mapping[str, Any]) -> Row:
    """A record as a line of the table."""
    return {IDENTITY: identity, **{name: column.of(record) for name, column in COLUMNS.items()}}


def check_column(name: str, where: str) -> str:
    """A column's name, or what was probably meant."""
    if name != IDENTITY and name not in COLUMNS:
        problem = unknown("column", name, [IDENTITY, *COLUMNS])
        raise BadInput(problem.what, where=where, fix=problem.fix)
    return name


def is_numeric(name: str) -> bool:
    return name != IDENTITY and COLUMNS[name].numeric
