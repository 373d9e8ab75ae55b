"""A rank that dies, stands still, runs out of memory or diverges ends the run in bounded time, and is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from endings import Ending

from foretell.cli.verbs.run import _with_record
from foretell.runtime.assignment import Assignment, Report, RunFailed
from foretell.runtime.launch import Ranks

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


LONGEST = 600.0
"""Seconds: what takes longer hangs. A busy machine needs minutes to import torch."""


def failed(ranks: Ranks, how: str, rank: int = 1, after: int = 0, **given: object) -> RunFailed:
    """How a run of two ranks fails of which one has such an end."""
    asked = {"plan": "dp2", "batch": 4, **given}
    assignment = Assignment(model=Ending(how, rank, after).model, **asked)  # type: ignore[arg-type]
    with pytest.raises(RunFailed) as caught:
        ranks.run(assignment, seconds=LONGEST)
    assert not _children(ranks), "ranks are left"
    return caught.value


def _children(ranks: Ranks) -> list[str]:
    """Processes that the one that forks ranks has."""
    process = ranks._child.pid
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_a_rank_that_is_killed(ranks: Ranks) -> None:
    problem = failed(ranks, "signal_9")
    assert problem.what == "rank 1 was ended by signal 9 (SIGKILL)"
    assert problem.where == "step 0, forward"
    assert problem.reports == ()


@pytest.mark.slow
def test_a_rank_that_is_stopped_after_six_steps(ranks: Ranks) -> None:
    problem = failed(ranks, "signal_19", after=6, dropped=2)
    assert "rank 1 has been stopped" in problem.what
    assert problem.where == "step 6, forward"
    assert [len(report.steps) for report in problem.reports] == [4, 4]
    assert all(set(report.phases) >= {"forward", "backward", "optimizer"} for report in problem.reports)
    assert [len(report.losses) for report in problem.reports] == [6, 6]


@pytest.mark.slow
def test_a_rank_that_goes_round_for_ever(ranks: Ranks) -> None:
    problem = failed(ranks, "hang", patience=6.0)
    assert problem.what == "no rank went on for 6 s; rank 1 is the furthest behind"
    assert problem.where == "step 0, forward"


@pytest.mark.slow
def test_a_rank_that_runs_out_of_memory(ranks: Ranks) -> None:
    problem = failed(ranks, "memory")
    assert problem.what.startswith("rank 1 ran out of memory")
    assert "recompute" in problem.fix


def test_a_rank_that_diverges(ranks: Ranks) -> None:
    problem = failed(ranks, "diverge", after=6, dropped=1)
    assert problem.what == "the loss of rank 1 is nan: training diverged"
    assert "--rate" in problem.fix
    assert {len(report.steps) for report in problem.reports} == {5}


def test_a_peer_that_is_lost_in_a_collective_of_our_own(ranks: Ranks) -> None:
    problem = failed(ranks, "signal_9", collectives="ring")
    assert problem.what == "rank 1 was ended by signal 9 (SIGKILL)"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit_7", "rank {} ended with exit code 7 and said no word"),
        ("exit_0", "rank {} ended with exit code 0 before its work was done"),
        ("signal_11", "rank {} was ended by signal 11 (SIGSEGV)"),
    ],
)
def test_a_rank_that_ends_without_a_word_is_named_and_not_those_that_miss_it(
    how: str, said: str, rank: int, ranks: Ranks
) -> None:
    assert failed(ranks, how, rank, after=1).what == said.format(rank)


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
def test_an_error_of_a_rank_is_told_with_its_place(phase: str, ranks: Ranks) -> None:
    problem = failed(ranks, f"{phase}_error" if phase != "forward" else "error", after=1)
    assert problem.what.startswith("rank 1 ended with an error:\n")
    assert "no bread in the house" in problem.what
    assert problem.where == f"step 1, {phase}"


def test_a_disk_that_is_full_is_named_and_the_checkpoint_before_is_whole(ranks: Ranks, tmp_path: Path) -> None:
    kept = {"checkpoints": str(tmp_path), "checkpoint_every": 1, "dropped": 1}
    problem = failed(ranks, "disk", after=4, **kept)
    assert problem.what == f"no checkpoint can be written in {tmp_path}: File too large; the one before is as it was"
    whole = sorted(file.parent.name for file in tmp_path.glob("step-*/checkpoint.json"))
    assert whole == ["step-2", "step-3"]
    assert not list(tmp_path.rglob("*.part"))


def test_after_all_that_ranks_come_up_again(ranks: Ranks) -> None:
    reports = ranks.run(Assignment(model="lenet", plan="dp2", batch=8, steps=1))
    assert [report.rank for report in reports] == [0, 1]


def test_a_full_store_does_not_hide_why_a_run_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    reports = tuple(
        Report(rank=rank, steps=[1.0, 1.0], phases={"forward": [1.0, 1.0]}, losses=[1.0]) for rank in (0, 1)
    )
    lost = RunFailed("rank 1 was ended by signal 9 (SIGKILL)", where="step 4, forward", fix="", reports=reports)
    told = _with_record(lost, Assignment(model="lenet", plan="dp2", batch=4), str(tmp_path), "")
    assert told.what.startswith("rank 1 was ended by signal 9 (SIGKILL)\n2 steps were measured until then: ")
    assert "No space left on device" in told.what
    assert told.where == "step 4, forward"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_tells_it_and_keeps_what_was_measured(tmp_path: Path) -> None:
    model = Ending("diverge", after=6).model
    arguments = ("run", model, "--plan", "dp2", "--batch", "4", "--device", "cpu")
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run(
        [sys.executable, "-m", "foretell", *arguments, "--records", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert ran.returncode == 2
    assert "the loss of rank 1 is nan" in ran.stderr
    assert "Traceback" not in ran.stderr
    (file,) = tmp_path.glob("failed-run-*.json")
    assert str(file) in ran.stderr
    found = json.loads(file.read_text())
    assert found["content"]["measurement"]["samples"]["n"] == 3
    assert "the loss of rank 1 is nan" in found["content"]["failure"]
