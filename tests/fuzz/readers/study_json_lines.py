"""Measured steps as JSON lines, for `validate`."""

from fuzz.mutate import json_lines_form
from fuzz.reader import ROOT, Reader, command


def samples() -> list[bytes]:
    steps = ROOT / "studies" / "h200_steps"
    return [
        b"\n".join((steps / name).read_bytes().split(b"\n")[:2]) + b"\n" for name in ("measured.jsonl", "second.jsonl")
    ]


READER = Reader(
    form=json_lines_form,
    samples=samples,
    entries=(
        command("validate", "{file}"),
        command("validate", "{file}", "--json"),
        command("validate", "{file}", "--rows"),
    ),
    ending=".jsonl",
)
