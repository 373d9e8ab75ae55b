"""A folder of records, one of which is spoiled."""

from pathlib import Path

from fuzz.mutate import json_form
from fuzz.reader import SAMPLES, Reader, command, files


def _whole_one(folder: Path) -> None:
    (folder / "whole.json").write_bytes((SAMPLES / "run.json").read_bytes())


READER = Reader(
    form=json_form,
    samples=files("tests/fuzz/samples/*.json"),
    entries=(
        command("results", "--records", "."),
        command("results", "--records", ".", "--json"),
        command("results", "--records", ".", "--columns", "all"),
        command("results", "--records", ".", "--to", "out.csv"),
        command("results", "--records", ".", "--sql", "select model, max(step_seconds), count(*) from records"),
    ),
    beside=_whole_one,
)
