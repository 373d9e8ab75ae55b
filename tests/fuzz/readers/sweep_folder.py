"""Answers that a sweep kept, and goes on from."""

from pathlib import Path

from fuzz.mutate import json_form
from fuzz.reader import Reader, command, files

_ASK = command(
    "sweep", "--model", "nobody", "--on", "2xh100", "--batch", "8", "--plan", "dp2", "--jobs", "1", "--out", "kept"
)


def _kept(file: Path, content: bytes) -> None:
    Path("kept").mkdir(exist_ok=True)
    Path("kept/answer-1.json").write_bytes(content)
    _ASK(file, content)


READER = Reader(form=json_form, samples=files("tests/fuzz/samples/answer.json"), entries=(_kept,))
