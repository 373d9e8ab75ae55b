"""Sweeps on a real Ray cluster, started here: workers are killed, the sweep goes on, the table is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from foretell.sweeping import sweep
from foretell.sweeping.cell import BROKEN, OK

pytestmark = pytest.mark.slow

CELLS = sweep.Grid(
    ("gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32", "gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32"),
    ("2xh100", "4xh100"),
    (4, 8),
).cells(only=("dp", "tp"))

NO_RAY = 77
"""The exit code of a driver whose Ray does not start."""

DRIVER = f'''
import os, pathlib, signal, sys
import msgspec, ray
from foretell.sweeping import sweep
from foretell.sweeping.cell import SweepCell
from foretell.sweeping.engines import ray as engine

folder = pathlib.Path(sys.argv[1])
cells = msgspec.json.decode((folder / "cells.json").read_bytes(), type=list[SweepCell])
init, shutdown, answered, ended = ray.init, ray.shutdown, engine._answered, []

def started(**given):
    try:
        return init(**given)
    except Exception as problem:
        print(f"{{type(problem).__name__}}: {{problem}}")
        sys.exit({NO_RAY})

def killed(cell, written):
    """What runs on a node: as often as the folder has a mark of this cell, the worker that has it is killed."""
    marks = sorted(folder.glob(msgspec.json.decode(cell, type=SweepCell).fingerprint + ".*"))
    if marks:
        marks[0].unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return answered(cell, written)

ray.init, ray.shutdown, engine._answered = started, lambda: ended.append(1), killed
swept = [sweep.sweep(cells, folder / "answers", engine="ray", jobs=2) for _ in range(2)]
shutdown()
(folder / "swept.json").write_bytes(msgspec.json.encode([len(ended), *swept]))
'''
"""Sweeps twice. The Ray that the first starts, and would end, is left to the second: starting it takes longest."""


def test_killed_workers_cost_no_more_than_their_cell_and_the_resumed_table_is_that_of_processes() -> None:
    once, often = CELLS[1], CELLS[4]  # Ray tries a cell three times
    with tempfile.TemporaryDirectory(prefix="ray-") as made:  # short, for Ray keeps its sockets below it
        folder = Path(made)
        for cell, times in ((once, 1), (often, 3)):
            for time in range(times):
                (folder / f"{cell.fingerprint}.{time}").touch()
        ended, first, resumed = on_ray(folder)
    expected = sweep.sweep(CELLS, jobs=2).rows
    assert [row.status for row in first.rows] == [BROKEN if cell is often else OK for cell in CELLS]
    assert "WorkerCrashed" in first.rows[4].reason
    assert first.rows[:4] + first.rows[5:] == expected[:4] + expected[5:]
    assert (first.kept, first.answered) == (0, len(CELLS))
    assert (resumed.kept, resumed.answered) == (len(CELLS) - 1, 1)
    assert resumed.rows == expected
    assert ended == 1  # a sweep ends the Ray that it started, and no other


def on_ray(folder: Path) -> tuple[int, sweep.Sweep, sweep.Sweep]:
    """What the driver found, in a process of its own: Ray's threads and its environment end with it."""
    (folder / "cells.json").write_bytes(msgspec.json.encode(CELLS))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", DRIVER, str(folder)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if ran.returncode == NO_RAY:
        pytest.skip(f"Ray does not start here: {ran.stdout.strip()}")
    assert ran.returncode == 0, ran.stderr
    return msgspec.json.decode((folder / "swept.json").read_bytes(), type=tuple[int, sweep.Sweep, sweep.Sweep])
