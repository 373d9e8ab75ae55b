"""foretell sweep: the same lines whoever answers them, kept as they are found, and what goes wrong as lines too."""

from __future__ import annotations

import csv
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import foretell as package
from foretell.cli import several
from foretell.errors import BadInput, MissingExtra
from foretell.records import store
from foretell.sweeping import answering, sweep
from foretell.sweeping.cell import BROKEN, FAILED, MISSING, OK, TOO_LARGE, SweepCell, SweepRow, row
from foretell.sweeping.engines import processes

ALWAYS = ("sweep",)

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
SMALL = (TINY, "gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32")
CELLS = sweep.Grid(SMALL, ("2xh100", "4xh100"), (4, 8)).cells(only=("dp", "tp"))
ASKED = ("--model", ",".join(SMALL), "--on", "2xh100,4xh100", "--batch", "4,8", "--only", "dp,tp")


@pytest.fixture(scope="module")
def one_by_one() -> sweep.Sweep:
    return sweep.sweep(CELLS, jobs=1)


# The same lines. ---------------------------------------------------------------------------------------


def test_lines_are_those_of_the_verb_in_the_order_of_the_cells(one_by_one: sweep.Sweep) -> None:
    assert [(one.model, one.cluster, one.batch) for one in one_by_one.rows] == [
        (model, cluster, batch) for model in SMALL for cluster in ("2xh100", "4xh100") for batch in (4, 8)
    ]
    for one in one_by_one.rows:
        found = package.plan(one.model, one.cluster, one.batch, only=("dp", "tp"))
        assert found.best is not None
        assert (one.plan, one.step_seconds, one.memory_bytes) == msgspec.structs.astuple(found.best)
        assert one.evaluated == found.evaluated


def test_several_processes_give_the_same_lines(one_by_one: sweep.Sweep) -> None:
    assert sweep.sweep(CELLS, jobs=3).rows == one_by_one.rows


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="ray"):
        sweep.sweep(CELLS[:1], engine="ray")


def test_plans_are_predicted() -> None:
    found = package.sweep(TINY, ["2xh100", "4xh100"], 8, plan=["dp4:zero3 +bf16", "tp2 +bf16"], jobs=1)
    assert [(one.cluster, one.plan, one.status) for one in found.rows] == [
        ("2xh100", "dp4:zero3 +bf16", FAILED),
        ("2xh100", "tp2 +bf16", OK),
        ("4xh100", "dp4:zero3 +bf16", OK),
        ("4xh100", "tp2 +bf16", OK),
    ]
    assert "enough ranks" in found.rows[0].reason
    step = package.predict(TINY, "4xh100", "dp4:zero3 +bf16", 8)
    assert (found.rows[2].step_seconds, found.rows[2].memory_bytes) == (step.step_seconds, step.memory_bytes)
    assert found.failures == (found.rows[0],)


# Failures are lines. -----------------------------------------------------------------------------------


def test_what_cannot_be_answered_has_a_reason() -> None:
    found = package.sweep([TINY, "no-such-model"], ["4xh100", "4xnothing"], 8, only="dp", jobs=1).rows
    assert [one.status for one in found] == [OK, FAILED, FAILED, FAILED]
    assert "nothing" in found[1].reason and "no-such-model" in found[2].reason
    small = package.sweep(TINY, "2xh100", 4, only="dp", max_memory="1 GB", jobs=1).rows[0]
    assert small.status == TOO_LARGE and "too much with" in small.reason
    refused = package.sweep(TINY, "8xh100", 8, only="tp", jobs=1).rows[0]
    assert refused.status == FAILED and "4 heads" in refused.reason


def test_a_defect_costs_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(cell: SweepCell) -> SweepRow:
        if cell.batch == 4:
            raise ZeroDivisionError("by zero")
        return row(cell, OK)

    monkeypatch.setattr(answering, "ANSWERS", {"plan": SimpleNamespace(answer=answer)})
    found = [answering.answered(cell) for cell in CELLS[:2]]
    assert [one.status for one in found] == [BROKEN, OK]
    assert found[0].reason == "ZeroDivisionError: by zero"


def test_a_process_that_dies_costs_one_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, sys, json\n"
        "for line in sys.stdin:\n"
        "    cell = json.loads(line)\n"
        "    if cell['batch'] == 4: os._exit(9)\n"
        "    names = ('ask', 'model', 'cluster', 'batch')\n"
        "    said = {name: cell[name] for name in names} | {'reason': os.environ['OMP_NUM_THREADS']}\n"
        "    print(json.dumps({**said, 'trainer': 'pytorch', 'seq': 0, 'precision': '', 'status': 'ok'}), flush=True)\n"
    )
    started = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **rest: started([sys.executable, str(worker)], **rest))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    found = dict(processes.answers(CELLS, 2))
    assert [found[place].status for place in range(len(CELLS))] == [BROKEN, OK] * 4
    assert "ended with 9" in found[0].reason
    assert found[1].reason == "4"  # threads of each of two processes on eight cores


# Answers that last. ------------------------------------------------------------------------------------


class Engine:
    """Answers nothing itself: counts what it is asked, and is interrupted after so many."""

    def __init__(self, rows: Sequence[SweepRow], until: int = 99) -> None:
        self.rows = {(one.model, one.cluster, one.batch): one for one in rows}
        self.until, self.asked = until, 0

    def answers(self, cells: Sequence[SweepCell], jobs: int) -> Iterator[tuple[int, SweepRow]]:
        for place, cell in reversed(list(enumerate(cells))):
            if self.asked == self.until:
                raise KeyboardInterrupt
            self.asked += 1
            yield place, self.rows[cell.model, cell.cluster, cell.batch]


@pytest.fixture
def with_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], None]:
    return lambda engine: monkeypatch.setattr(sweep, "ENGINES", {"processes": engine})


def test_an_interrupted_sweep_goes_on(
    one_by_one: sweep.Sweep, with_engine: Callable[[Engine], None], tmp_path: Path
) -> None:
    first = Engine(one_by_one.rows, until=3)
    with_engine(first)
    cut = sweep.sweep(CELLS, tmp_path)
    assert not cut.complete and [one.status for one in cut.rows] == [MISSING] * 5 + [OK] * 3
    second = Engine(one_by_one.rows)
    with_engine(second)
    whole = sweep.sweep(CELLS, tmp_path)
    assert second.asked == 5 and (whole.kept, whole.answered) == (3, 5)
    assert whole.rows == one_by_one.rows
    assert {store.read(path).kind for path in store.files(tmp_path)} == {"answer"}


def test_what_broke_is_tried_again_and_what_failed_is_not(
    one_by_one: sweep.Sweep, with_engine: Callable[[Engine], None], tmp_path: Path
) -> None:
    replace = msgspec.structs.replace
    rows = [replace(one, status=status) for one, status in zip(one_by_one.rows, [BROKEN, FAILED] * 4, strict=True)]
    with_engine(Engine(rows))
    sweep.sweep(CELLS, tmp_path)
    again = Engine(one_by_one.rows)
    with_engine(again)
    assert sweep.sweep(CELLS, tmp_path).kept == again.asked == 4


MANY = 2000
"""More cells than are answered before a busy machine comes to kill whoever asks."""


def test_a_killed_sweep_keeps_what_was_answered(tmp_path: Path) -> None:
    """Killed, not asked to end: nothing can be tidied up."""
    answers = tmp_path / "answers"
    batches = [4 * number for number in range(1, MANY)]
    listed = ",".join(map(str, batches))
    asked = ["--model", TINY, "--on", "4xh100", "--batch", listed, "--only", "dp,tp", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "foretell", "sweep", *asked, "--out", str(answers)], stdout=subprocess.DEVNULL
    )
    while len(list(answers.glob("*.json"))) < 3 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sweep.kept(answers).answers
    assert 3 <= len(kept) < MANY - 1
    cells = sweep.Grid((TINY,), ("4xh100",), batches).cells(only=("dp", "tp"))
    done = [cell for cell in cells if cell.fingerprint in kept]
    assert len(done) == len(kept)
    again = sweep.sweep(done, answers)
    assert (again.kept, again.answered) == (len(kept), 0)


def test_another_question_has_another_fingerprint(tmp_path: Path) -> None:
    first = CELLS[0]
    others = [
        msgspec.structs.replace(first, **change)
        for change in ({"batch": 8}, {"seq": 16}, {"only": ("dp",)}, {"max_memory": "60 GB"}, {"trainer": "fsdp"})
    ]
    assert len({one.fingerprint for one in (first, *others)}) == 6
    assert msgspec.structs.replace(first).fingerprint == first.fingerprint
    file = tmp_path / "config.json"
    file.write_text("{}")
    named = msgspec.structs.replace(first, model=str(file))
    in_folder = msgspec.structs.replace(first, model=str(tmp_path))
    before = [named.fingerprint, in_folder.fingerprint]
    file.write_text("{ }")
    assert not {one.fingerprint for one in map(msgspec.structs.replace, (named, in_folder))} & set(before)


# What is asked. ----------------------------------------------------------------------------------------


def test_names_may_have_commas_of_their_own() -> None:
    assert several.models([f"gpt2,{TINY},resnet50", "gpt2"]) == ["gpt2", TINY, "resnet50"]
    assert several.clusters(["8xh100,2x8xa100-80,4xib-hdr,ib-ndr,abci:64"]) == [
        "8xh100",
        "2x8xa100-80,4xib-hdr,ib-ndr",
        "abci:64",
    ]


WRONG = [
    (("--batch", "8,x"), "no batches"),
    (("--ask", "guess"), "'guess'"),
    (("--ask", "predict"), "no plan is given"),
    (("--ask", "plan", "--plan", "dp4"), "finds its own"),
    (("--only", ""), "--only names nothing"),
    (("--trainer", ","), "--trainer names nothing"),
    (("--engine", "horses"), "no engine is called 'horses'"),
    (("--jobs", "-1"), "-1 processes"),
    (("--table", "x.txt"), "no table"),
]


@pytest.mark.parametrize(("more", "message"), WRONG, ids=[case[1] for case in WRONG])
def test_what_cannot_be_asked(foretell: Any, more: tuple[str, ...], message: str) -> None:
    ran = foretell(*ASKED, *more)
    assert ran.code == 2 and message in ran.err and not ran.out


@pytest.mark.parametrize("left_out", ["--model", "--on", "--batch"])
def test_what_is_not_given(foretell: Any, left_out: str) -> None:
    at = ASKED.index(left_out)
    ran = foretell(*ASKED[:at], *ASKED[at + 2 :])
    assert ran.code == 2 and left_out in ran.err


def test_a_batch_is_a_number() -> None:
    with pytest.raises(BadInput, match="'8'"):
        package.sweep(TINY, "2xh100", cast("Any", ["8"]))
    with pytest.raises(BadInput, match="a list of Graph"):
        package.sweep(cast("Any", [package.load(TINY)]), "2xh100", 8)


def test_nobody_waits_for_millions() -> None:
    with pytest.raises(BadInput, match="2,000,000 cells"):
        sweep.Grid(["m"] * 1000, ["c"] * 1000, [1, 2]).cells()


# Pages, tables, exit codes. ----------------------------------------------------------------------------


def test_page_table_and_json_tell_the_same(foretell: Any, tmp_path: Path, one_by_one: sweep.Sweep) -> None:
    file = tmp_path / "sweep.csv"
    ran = foretell(*ASKED, "--jobs", "1", "--out", str(file))
    assert ran.code == 0 and not ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    assert ran.out.endswith("8 cells: 8 answered\n")
    answer = json.loads(foretell(*ASKED, "--jobs", "1", "--out", f"{file}.answers", "--json").out)
    assert answer["complete"] and (answer["answered"], answer["kept"]) == (0, 8)
    assert msgspec.convert(answer["rows"], tuple[SweepRow, ...]) == one_by_one.rows
    lines = list(csv.DictReader(file.read_text().splitlines()))
    assert [line["plan"] for line in lines] == [one.plan for one in one_by_one.rows]
    assert [float(line["step_seconds"]) for line in lines] == [one.step_seconds for one in one_by_one.rows]
    for one in one_by_one.rows:
        assert one.plan in ran.out


def test_parquet(foretell: Any, tmp_path: Path, one_by_one: sweep.Sweep) -> None:
    file = tmp_path / "sweep.parquet"
    foretell(*ASKED, "--jobs", "1", "--table", str(file))
    read = importlib.import_module("pyarrow.parquet").read_table(file).to_pylist()
    assert [one["memory_bytes"] for one in read] == [one.memory_bytes for one in one_by_one.rows]


def test_exit_codes(foretell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ("--model", TINY, "--on", "2xh100", "--batch", "4", "--only", "dp", "--jobs", "1")
    assert foretell(*one).code == 0
    ran = foretell(*one, "--max-memory", "1 GB")
    assert ran.code == 1 and "1 nothing fits" in ran.out
    monkeypatch.setattr(sweep, "ENGINES", {"processes": Engine([], until=0)})
    ran = foretell(*one)
    assert ran.code == 130 and "not reached" in ran.out and "interrupted" in ran.out
