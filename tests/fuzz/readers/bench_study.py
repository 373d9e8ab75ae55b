"""Studies of `foretell bench`: what was asked, and rows."""

import shutil
from pathlib import Path

from fuzz.mutate import json_form
from fuzz.reader import ROOT, Entry, Reader, command, files

STUDY = ROOT / "studies" / "bench_quick"


def _spoiled(name: str, *words: str) -> Entry:
    """A study with one spoiled file."""
    ask = command("bench", "--show", "study", *words)

    def entry(file: Path, content: bytes) -> None:
        shutil.rmtree("study", ignore_errors=True)
        Path("study/rows").mkdir(parents=True)
        shutil.copy(STUDY / "study.json", "study/study.json")
        for row in sorted((STUDY / "rows").iterdir())[:6]:
            shutil.copy(row, Path("study/rows"))
        (Path("study") / name).write_bytes(content)
        ask(file, content)

    return entry


ROW = "rows/image-zzz-2-0-a.json"
READER = (
    Reader(
        form=json_form,
        samples=files("studies/bench_quick/rows/*.json"),
        entries=(_spoiled(ROW), _spoiled(ROW, "--json"), _spoiled(ROW, "--html", "page.html")),
    ),
    Reader(form=json_form, samples=files("studies/bench_quick/study.json"), entries=(_spoiled("study.json"),)),
)
