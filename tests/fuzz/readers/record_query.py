"""Conditions and queries about records."""

from pathlib import Path

from fuzz.mutate import argument_form
from fuzz.reader import SAMPLES, Entry, Reader, command, texts

ALL = ("results", "--records", ".")


def _records(folder: Path) -> None:
    for name in ("run.json", "calibration.json", "answer.json"):
        (folder / name).write_bytes((SAMPLES / name).read_bytes())


def _asked(*entries: Entry, samples: tuple[str, ...]) -> Reader:
    return Reader(form=argument_form, samples=texts(*samples), entries=entries, beside=_records, ending=".txt")


READER = (
    _asked(
        command(*ALL, "--sql", "{text}"),
        command(*ALL, "--sql", "{text}", "--json"),
        samples=(
            "select plan, median(step_seconds) from records group by plan order by 2 limit 3",
            "select * from records where step_seconds < 0.1 and model like 'le%'",
        ),
    ),
    _asked(
        command(*ALL, "--where", "{text}"),
        samples=("step_seconds between 0.001 and 1 or plan in ('dp2', 'tp2')", "plan like 'dp%' and not ranks is null"),
    ),
    _asked(command(*ALL, "--columns", "{text}"), samples=("model, plan, step_seconds",)),
    _asked(command(*ALL, "show", "{text}"), samples=("run", "run.json")),
)
