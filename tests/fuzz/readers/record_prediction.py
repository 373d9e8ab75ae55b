"""Predictions that were kept."""

from fuzz.mutate import json_form
from fuzz.reader import Reader, command, files

READER = Reader(
    form=json_form,
    samples=files("tests/fuzz/samples/prediction.json"),
    entries=(
        command("check", "{file}"),
        command("check", "{file}", "--json"),
        command("results", "show", "{file}"),
    ),
)
