"""A run that loses a rank goes on from its last checkpoint as if nothing had happened: the same losses to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.runtime import checkpoints, restart_log
from foretell.runtime.assignment import Assignment, RunFailed
from foretell.runtime.checkpoints import _held
from foretell.runtime.launch import Ranks
from foretell.runtime.recording import observed

SOURCE = Path(__file__).parents[2] / "src"
LONG = 400.0
LLAMA = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=64,seq=16"

PLANS = {
    "dp2": ("lenet", "dp2", {"optimizer": "adamw"}),
    "zero1": ("lenet", "dp2:zero1", {"optimizer": "momentum"}),
    "zero3": (LLAMA, "dp2:zero3", {"optimizer": "adamw"}),
    "pipeline": (LLAMA, "pp2:1f1b +m2", {"optimizer": "adamw"}),
    "masters": (LLAMA, "dp2 +bf16", {"optimizer": "adamw"}),
    "masters in shares": (LLAMA, "dp2:zero1 +bf16", {"optimizer": "adamw"}),
}


def _asked(name: str, **more: object) -> Assignment:
    model, plan, given = PLANS[name]
    said = {"model": model, "plan": plan, "batch": 4, "steps": 6, "dropped": 2, **given, **more}
    return Assignment(**said)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["dp2", *(pytest.param(one, marks=pytest.mark.slow) for one in PLANS if one != "dp2")])
def test_a_run_that_lost_ranks_has_the_losses_of_one_that_did_not(name: str, ranks: Ranks, tmp_path: Path) -> None:
    whole = ranks.run(_asked(name), LONG)
    folder = tmp_path / "checkpoints"
    elastic = {"checkpoints": str(folder), "checkpoint_every": 2, "restarts": 2, "fail_at": (1, 5)}
    found = ranks.run(_asked(name, **elastic), LONG)
    assert [report.losses for report in found] == [report.losses for report in whole]
    assert [len(report.steps) for report in found] == [6, 6]
    assert [report.collectives for report in found] == [report.collectives for report in whole]
    past = restart_log.events(folder)
    assert [(one.what, one.step) for one in past] == [
        ("began", 0),
        ("died", 1),
        ("began", 0),  # nothing was kept yet
        ("wrote", 2),
        ("wrote", 4),
        ("died", 5),
        ("began", 4),
        ("wrote", 6),
        ("ended", 6),
    ]
    assert [one.name for one in sorted(folder.iterdir())] == ["held-by.json", "lives.jsonl", "step-4", "step-6"]


def test_a_checkpoint_that_was_not_finished_does_not_count(ranks: Ranks, tmp_path: Path) -> None:
    """Half of the next one lies beside it: the run goes on from the last whole one."""
    kept = {"checkpoints": str(tmp_path), "checkpoint_every": 2}
    whole = ranks.run(_asked("dp2"), LONG)
    ranks.run(_asked("dp2", **kept | {"steps": 4}), LONG)
    (tmp_path / "step-6").mkdir()
    (tmp_path / "step-6" / "rank-0.part").write_bytes(b"half")
    (tmp_path / "step-6" / "rank-1.pt").write_bytes(b"a whole one, and nobody said so")
    found = ranks.run(_asked("dp2", **kept), LONG)
    assert [report.losses for report in found] == [report.losses for report in whole]


def test_a_checkpoint_that_was_damaged_is_passed_over_and_told(ranks: Ranks, tmp_path: Path) -> None:
    """The newest has a changed byte: the run goes on from the one before, and ends as if nothing had happened."""
    kept = {"checkpoints": str(tmp_path), "checkpoint_every": 2}
    whole = ranks.run(_asked("dp2"), LONG)
    ranks.run(_asked("dp2", **kept | {"steps": 4}), LONG)
    part = tmp_path / "step-4" / "rank-1.pt"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    found = ranks.run(_asked("dp2", **kept), LONG)
    assert [report.losses for report in found] == [report.losses for report in whole]
    lives = observed(_asked("dp2", **kept), found).lives
    assert lives is not None
    assert lives.passed_over == ("step 4: rank-1.pt has another checksum than when it was written",)
    assert sorted(one.name for one in tmp_path.glob("step-*")) == ["step-4", "step-6"]


def test_where_no_checkpoint_is_whole_nobody_begins_anew(ranks: Ranks, tmp_path: Path) -> None:
    kept = {"checkpoints": str(tmp_path), "checkpoint_every": 1, "steps": 2}
    ranks.run(_asked("dp2", **kept), LONG)
    for file in (tmp_path / "step-1" / "rank-0.pt", tmp_path / "step-2" / "checkpoint.json"):
        file.write_bytes(b"")
    with pytest.raises(BadInput, match=r"no checkpoint in .* is as it was written; step-2: .*; step-1: rank-0.pt"):
        ranks.run(_asked("dp2", **kept), LONG)


def test_a_folder_that_another_run_holds_is_refused_with_its_holder(ranks: Ranks, tmp_path: Path) -> None:
    """The lock is that of an open file: it is gone with its process, whatever the file says."""
    kept = {"checkpoints": str(tmp_path), "checkpoint_every": 1, "steps": 1}
    other = _held(tmp_path, _asked("dp2", **kept))
    with pytest.raises(BadInput, match=f"is in use: process {os.getpid()} on .* writes checkpoints of lenet under dp2"):
        ranks.run(_asked("dp2", **kept), LONG)
    os.close(other)
    ranks.run(_asked("dp2", **kept), LONG)


def test_more_failures_than_restarts_end_the_run_and_the_steps_of_all_lives_are_kept(
    ranks: Ranks, tmp_path: Path
) -> None:
    asked = _asked("dp2", checkpoints=str(tmp_path), checkpoint_every=1, restarts=1, fail_at=(1, 3, 5))
    with pytest.raises(RunFailed, match="was ended by signal 9") as caught:
        ranks.run(asked, LONG)
    assert sum(one.what == "died" for one in restart_log.events(tmp_path)) == 2
    assert [len(report.steps) for report in caught.value.reports] == [3, 3]
    assert [len(report.losses) for report in caught.value.reports] == [5, 5]
    assert all(set(report.phases) >= {"forward", "backward"} for report in caught.value.reports)
    assert all(len(times) == 3 for report in caught.value.reports for times in report.phases.values())


def test_checkpoints_of_another_run_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    kept = {"checkpoints": str(tmp_path), "checkpoint_every": 1, "steps": 1}
    ranks.run(_asked("dp2", **kept), LONG)
    with pytest.raises(BadInput, match="checkpoints of another run"):
        ranks.run(_asked("dp2", **kept, seed=1), LONG)
    with pytest.raises(BadInput, match="checkpoints of another run"):
        ranks.run(_asked("dp2", **kept, warmup=5), LONG)


def test_a_folder_that_cannot_be_made_is_refused_before_the_start(ranks: Ranks, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="no checkpoint can be written"):
        ranks.run(_asked("dp2", checkpoints=str(tmp_path / "file" / "kept"), checkpoint_every=1), LONG)


def test_checkpoints_of_an_earlier_version_are_refused_and_stay(tmp_path: Path) -> None:
    (tmp_path / "latest.json").write_text('{"step":4,"of":""}')
    (tmp_path / "step-4").mkdir()
    (tmp_path / "step-4" / "rank-0.pt").touch()
    with pytest.raises(BadInput, match=r"of an earlier version of foretell \(latest.json\)"):
        checkpoints.made(str(tmp_path))
    (tmp_path / "step-4" / "checkpoint.json").touch()
    checkpoints.made(str(tmp_path))


def test_plans_that_no_checkpoint_holds_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    asked = Assignment(model=LLAMA, plan="pp2:stash", batch=4, checkpoints=str(tmp_path), checkpoint_every=1)
    with pytest.raises(BadInput, match="never runs empty"):
        ranks.run(asked, LONG)


@pytest.mark.slow
def test_torchrun_restarts_the_ranks_and_the_goodput_is_told(ranks: Ranks, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    same = ("run", "lenet", "--plan", "dp2", "--batch", "4", "--steps", "6", "--device", "cpu", "--records", "runs")
    kept = ("--checkpoint", "kept", "--checkpoint-every", "2", "--restarts", "1", "--fail-at", "3")

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "foretell", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG)

    asked = Assignment(model="lenet", plan="dp2", batch=4, steps=6)
    whole = observed(asked, ranks.run(asked, LONG))
    elastic = ran(*same, *kept, "--nnodes", "1", "--json")
    assert elastic.returncode == 0, elastic.stderr[-3000:]
    found = json.loads(elastic.stdout.splitlines()[-1])
    assert found["losses"] == whole.losses
    assert found["lives"]["failures"] == 1
    assert 0 < found["lives"]["goodput"] < 1
    told = ran("goodput", found["record"], "--mtbf", "1h", "--json")
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    assert answer["measured"] == found["lives"]
    assert answer["restart_seconds"] == found["lives"]["restart_seconds"]
