"""What a run leaves in its folder of checkpoints for the next life."""

from pathlib import Path

from foretell.runtime.restart_log import FILE, events
from fuzz.mutate import json_lines_form
from fuzz.reader import Reader, texts

LINES = """{"what":"began","step":0,"at":1794979597.8,"seconds":0.0,"rank":0}
{"what":"saved","step":3,"at":1794979598.8,"seconds":0.1,"rank":0}
{"what":"ended","step":6,"at":1794979599.8,"seconds":0.0,"rank":0}
"""


def _read(file: Path, content: bytes) -> None:
    Path(FILE).write_bytes(content)
    events(Path())


READER = Reader(form=json_lines_form, samples=texts(LINES), entries=(_read,), ending=".jsonl")
