"""A sweep of real runs goes on with the next plan after a failure, and goes on where it was after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from endings import Ending

from foretell.errors import BadInput
from foretell.sweeping import answering, sweep
from foretell.sweeping.cell import BROKEN, FAILED, OK

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
LONG = 400.0


@pytest.fixture(autouse=True)
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_RECORDS", str(tmp_path / "records"))


@pytest.mark.slow
def test_a_failure_is_a_line_and_the_next_plan_is_run(tmp_path: Path) -> None:
    models = (Ending("signal_9").model, "lenet")
    grid = sweep.Grid(models, ("this-machine",), (4,), plans=("dp3", "dp2"), ask="run")
    cells = grid.cells(calibration="none", steps=2)
    found = sweep.sweep(cells, tmp_path / "answers", jobs=4)  # four at once would measure each other
    assert [one.status for one in found.rows] == [FAILED, BROKEN, FAILED, OK]
    assert "rank 1 was ended by signal 9" in found.rows[1].reason
    assert "step 0, forward" in found.rows[1].reason
    last = found.rows[3]
    assert last.step_seconds and last.low_seconds and last.low_seconds <= last.step_seconds
    assert json.loads(Path(last.record).read_text())["content"]["measurement"]["samples"]["n"] == 2
    again = sweep.kept(tmp_path / "answers").answers
    assert sorted(row.status for row in again.values()) == [FAILED, FAILED, OK]  # what broke is asked again


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    words = ("sweep", "--ask", "run", "--model", "lenet", "--on", "this-machine", "--batch", "4", "--steps", "1")
    words += ("--plan", "dp1", "--plan", "dp2", "--out", "answers", "--calibration", "none", "--json")
    command = [sys.executable, "-m", "foretell", *words]
    first = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + LONG
        while not list((tmp_path / "answers").glob("answer-*.json")) and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    before = len(list((tmp_path / "answers").glob("answer-*.json")))
    assert before
    second = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG)
    assert second.returncode == 0, second.stderr
    found = json.loads(second.stdout)
    assert (found["kept"], found["answered"]) == (before, 2 - before)
    assert [row["status"] for row in found["rows"]] == [OK, OK]


def test_runs_are_of_this_machine_and_one_at_a_time() -> None:
    (cell,) = sweep.Grid(("lenet",), ("8xh100",), (8,), plans=("dp8",), ask="run").cells(calibration="none")
    found = answering.answered(cell)
    assert found.status == FAILED and "this-machine" in found.reason
    assert [name for name in answering.ANSWERS if answering.ANSWERS[name].ALONE] == ["run"]
    with pytest.raises(BadInput, match="no plan is given"):
        sweep.Grid(("lenet",), ("this-machine",), (8,), ask="run").cells(calibration="none")
