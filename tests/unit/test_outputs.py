"""Files that a person names are written beside and renamed: a full disk leaves those that were there as they were."""

from __future__ import annotations

import errno
import os
import re
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "foretell"

STEP = ("predict", "lenet", "--on", "8xh100", "--plan", "dp8", "--batch", "64")
SEARCH = ("plan", "lenet", "--on", "8xh100", "--batch", "64", "--only", "dp")
SWEEP = ("sweep", "--model", "lenet", "--on", "8xh100", "--batch", "64", "--plan", "dp8", "--jobs", "1")
SIMULATE = ("simulate", "lenet", "--on", "4xv100-16", "--workers", "2", "--algorithms", "sync", "--samples", "64")
LAB = ("lab", "describe", "--overhead", "1us")
EXPORT = ("export", "llama3.2-1b", "--on", "8xh100", "--plan", "dp8", "--batch", "8", "--to", "torchtitan")

OUTPUTS = {
    "graph": ("analyze", "lenet", "--graph", "file.json"),
    "trace": (*STEP, "--trace", "file.json"),
    "compressed trace": (*STEP, "--trace", "file.json.gz"),
    "kept prediction": (*STEP, "--keep", "file.json"),
    "page of a step": (*STEP, "--html", "file.html"),
    "page of a search": (*SEARCH, "--html", "file.html"),
    "table of plans": (*SEARCH, "--table", "file.csv"),
    "parquet of plans": (*SEARCH, "--table", "file.parquet"),
    "arrow of a sweep": (*SWEEP, "--table", "file.arrow"),
    "table of a sweep": (*SWEEP, "--table", "file.csv"),
    "page of a simulation": (*SIMULATE, "--html", "file.html"),
    "drawing of a simulation": (*SIMULATE, "--plot", "file.svg"),
    "trace of a simulation": (*SIMULATE, "--trace", "file.json"),
    "cluster of a lab": (*LAB, "file.toml"),
    "configuration": (*EXPORT, "--out", "file.toml"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_full_disk_leaves_the_file_that_was_there_and_an_empty_one_does_not(
    name: str, foretell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = OUTPUTS[name]
    file = tmp_path / words[-1]
    file.write_bytes(b"the old one")
    real = os.fsync

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("foretell.files.os.fsync", full)
    ran = foretell(*words)
    assert (ran.code, "No space left on device" in ran.err, "Traceback" in ran.err) == (2, True, False)
    assert file.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [file]
    monkeypatch.setattr("foretell.files.os.fsync", real)
    file.unlink()
    mask = os.umask(0o027)
    try:
        assert foretell(*words).code == 0
    finally:
        os.umask(mask)
    assert file.read_bytes() != b"the old one"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640  # what a person names follows umask


def test_a_file_that_may_grow_no_further_is_left_as_it_was(tmp_path: Path) -> None:
    """The kernel's own limit, and not a stand-in for it."""
    file = tmp_path / "graph.json"
    file.write_bytes(b"the old one")
    ran = subprocess.run(
        [sys.executable, "-m", "foretell", "analyze", "lenet", "--graph", str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # bytecode would be cut off too, for everybody
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert ran.returncode == 2
    assert "cannot write the graph: File too large; a file that was there is as it was" in " ".join(ran.stderr.split())
    assert file.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [file]


WRITES = re.compile(r"\.write_(?:text|bytes)\(|\.open\(\s*['\"][wax]|\bopen\((?!\d)[^)]*['\"][wax]b?['\"]|\.touch\(\)")
OTHERWISE = {
    "files.py": "this is the place",
    "serve/uploads.py": "renamed, in a folder that goes with the server",
    "bench/environments.py": "of an environment that pip makes; made anew where it is not whole",
    "bench/engines/ray_train.py": "a rank's report, in a folder that goes with the run",
    "runtime/fork_server.py": "a rank's report, renamed, in a folder that goes with the run",
}


def test_nothing_is_written_otherwise() -> None:
    found = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if WRITES.search(file.read_text(encoding="utf-8"))
    }
    assert found == set(OTHERWISE)
