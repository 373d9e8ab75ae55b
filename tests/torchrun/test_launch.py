"""Ranks come up, end, and never outlive the command, whatever happens to one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from endings import Ending

from answers import documented
from foretell.cli.run_pages import dry_page
from foretell.errors import BadInput
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime import journal
from foretell.runtime.appliers import APPLIERS
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import TrafficMismatch, traffic
from foretell.runtime.compute_emulation import BEHIND, NAP
from foretell.runtime.launch import Ranks
from free_port import free_port

FACTORIES = Path(__file__).parents[1] / "data" / "factories.py"
HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
LENET = ("run", "lenet", "--batch", "8", "--steps", "3", "--records", "runs", "--json")


def _nurseries(folder: str = "") -> list[int]:
    """The processes that bring ranks up, and the ranks, which are forks of them: those of one run by its folder."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"foretell.runtime\0" in command and folder.encode() in command:
            found.append(int(process.name))
    return found


LONGEST = 600.0
"""Seconds: what takes longer hangs. A busy machine needs minutes to import torch."""


def _come(folder: str, count: int) -> bool:
    """Whether so many processes come up; one has no name yet when it is only forked."""
    return _in_time(lambda: len(_nurseries(folder)) >= count)


def _gone(folder: str) -> bool:
    return _in_time(lambda: not _nurseries(folder))


def _in_time(true: Callable[[], bool]) -> bool:
    """Whether something comes true."""
    until = time.monotonic() + LONGEST
    while not (found := true()) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def test_a_rank_that_fails_is_named_with_its_error(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match=r"(?s)rank 1 ended with an error.*no bread in the house"):
        ranks.run(Assignment(model=Ending("error").model, plan="dp2", batch=4))


def test_a_module_that_cannot_be_traced_is_named_and_the_next_one_runs(ranks: Ranks) -> None:
    """It is traced in a fork, which may end as it likes."""
    for name, problem in (("broken", "this model is not finished"), ("aborts", "ended without an answer")):
        with pytest.raises(BadInput, match=problem):
            ranks.run(Assignment(model=f"{FACTORIES}:{name}", plan="dp2", batch=4))
    (report,) = ranks.run(Assignment(model=f"{FACTORIES}:perceptron", plan="dp1", batch=4, steps=1))
    assert len(report.losses) == 4


def test_a_rank_that_is_killed_ends_the_others(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="rank 1 was ended by signal 9"):
        ranks.run(Assignment(model=Ending("signal_9").model, plan="dp2", batch=4))
    found = ranks.run(Assignment(model="lenet", plan="dp2", batch=8, steps=1))  # and others can come up after it
    assert [report.rank for report in found] == [0, 1]


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(BadInput, match="did not end within 3 seconds"), Ranks() as own:
        folder = str(own.folder)
        assert _come(folder, 1)
        own.run(Assignment(model="lenet", plan="dp2", batch=8, steps=10**7), seconds=3)
    assert _gone(folder)


def test_what_took_too_long_leaves_what_was_measured_until_then(tmp_path: Path) -> None:
    """Ranks were ended in the middle: their notes are still there, the last of them cut."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    for rank, steps in enumerate((5, 4)):
        notes = journal.FileJournal(meeting, rank)
        for at in range(steps):
            notes.stepped(journal.StepEnded(1.0 + at, {"forward": 1.0 + at}, 2.0))
    with (meeting / "steps-1.jsonl").open("ab") as file:
        file.write(b'{"seconds": 9')
    own = Ranks()
    own.folder = tmp_path
    late = own._late(Assignment(model="lenet", plan="dp2", batch=8, dropped=1), 10.0)
    assert late.what == "dp2 did not end within 10 seconds"
    assert [report.steps for report in late.reports] == [[2.0, 3.0, 4.0]] * 2
    assert [len(report.losses) for report in late.reports] == [4, 4]


def test_no_rank_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment["TMPDIR"] = str(tmp_path)  # where the run has its folder, by which it is found
    arguments = ("run", "lenet", "--plan", "dp2", "--batch", "8", "--steps", "10000000", "--device", "cpu")
    command = subprocess.Popen([sys.executable, "-m", "foretell", *arguments], cwd=tmp_path, env=environment)
    try:
        assert _come(str(tmp_path), 3)  # two ranks beside the one that forks
    finally:
        command.kill()
        command.wait()
    assert _gone(str(tmp_path))


def test_a_plan_without_an_applier_is_refused_by_name(ranks: Ranks) -> None:
    for plan, word in (
        ("tp2 +fp8", r"\+fp8"),
        ("pp2:stash dp2:zero3 +m4", "stash beside zero3"),
        ("tp2 +captured", r"\+captured"),
        ("dp2:zero3 +recompute:every2", "every2 beside zero3"),
        ("dp2 +offload:weights", "offload:weights"),
        ("dp2 +offload:optimizer,weights +recompute:block", "offload:weights beside"),
        ("pp2:zb-h1 dp2 +m4 +compress:fp16", "compress:fp16 beside pp2:zb-h1"),
    ):
        with pytest.raises(BadInput, match=rf"(?s){word}.*(does|do) not run|{word}.*no applier yet"):
            ranks.run(Assignment(model="llama:layers=4,hidden=32,heads=4,ffn=48,vocab=40,seq=8", plan=plan, batch=8))


def test_a_share_without_rows_is_refused_with_the_numbers(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match=r"features\.20 makes 1 of 2 rows, and 2 ranks would share them"):
        ranks.run(Assignment(model="vgg11:image=32", plan="dp2 spatial2", batch=4))


def test_ranks_wait_as_long_as_is_predicted(ranks: Ranks) -> None:
    """Phases that are foretold to be long: what operators take of them is nothing, and waits make up the rest.

    A step may be shorter by what the one before it was late, and by what is too short to be slept off. A busy machine
    makes it longer.
    """
    foretold = {"forward": 0.1, "backward": 0.1, "optimizer": 0.1}
    asked = Assignment(model="lenet", plan="dp2", batch=8, steps=2, waits=True, computes=(foretold,) * 2)
    reports = ranks.run(asked)
    shortest = sum(foretold.values()) - BEHIND - NAP
    assert len(reports) == 2 and all(min(report.steps) > shortest for report in reports)


def _ran(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    others = os.environ.get("PYTHONPATH")
    path = f"{SOURCE}{os.pathsep}{others}" if others else str(SOURCE)
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST
    )


def test_the_command_measures_records_and_compares(tmp_path: Path) -> None:
    ran = _ran("foretell", *LENET, "--plan", "dp2 +m2", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    answer = documented("run", ran.stdout)
    assert set(answer) >= {"step_seconds", "memory_bytes", "memory", "breakdown", "samples"}
    assert set(answer) >= {"plan", "ranks", "losses", "collectives", "record"}
    assert sum(answer["breakdown"].values()) == pytest.approx(answer["step_seconds"])
    assert answer["samples"]["p10"] <= answer["step_seconds"] <= answer["samples"]["p90"]
    where = ("--on", "8xcpu", "--calibration", "none")
    compared = _ran("foretell", "compare", answer["record"], *where, "--json", folder=tmp_path)
    assert compared.returncode == 0, compared.stderr
    found = documented("compare", compared.stdout)
    error = found["predicted"]["step_seconds"] - found["measured"]["step_seconds"]
    assert found["error"]["step_seconds"] == pytest.approx(error)
    assert found["collectives"] == {"unexpected": [], "missing": []}


def test_a_dry_run_of_the_command(tmp_path: Path) -> None:
    ran = _ran("foretell", "run", "lenet", "--plan", "dp4", "--batch", "8", "--dry-run", "--json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    answer = documented("run --dry-run", ran.stdout)
    assert answer["ranks"] == 4 and answer["collectives"]
    assert answer["unexpected"] == answer["missing"] == []


def test_two_nodes_meet_and_their_ranks_join(tmp_path: Path) -> None:
    """Each starts torchrun, which starts the command as one of the ranks: rank 0 alone answers."""
    meeting = f"127.0.0.1:{free_port()}"
    node = ("foretell", *LENET, "--plan", "dp2", "--nnodes", "2", "--rendezvous", meeting)
    with ThreadPoolExecutor() as both:
        ran = list(both.map(lambda _: _ran(*node, folder=tmp_path), range(2)))
    assert [one.returncode for one in ran] == [0, 0], ran[0].stderr + ran[1].stderr
    (line,) = [line for one in ran for line in one.stdout.splitlines() if line.startswith("{")]
    assert json.loads(line)["ranks"] == 2
    assert len(list((tmp_path / "runs").glob("*.json"))) == 1


DRY = (
    ("llama:layers=2,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16", "dp128:zero3 tp8:sp"),
    ("llama:layers=2,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16", "dp64:zero3,shard16 +m2"),
    ("lenet", "dp1024"),
    ("lenet", "dp64:zero3 filter2"),
    ("llama:layers=4,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16", "pp4:1f1b dp64:zero3 tp8 +m8"),
    ("llama:layers=4,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16", "pp4:zb-h1 dp128 tp8:sp +m8"),
    ("llama:layers=2,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16", "dp64:zero3 cp8:alltoall"),
    ("llama:layers=2,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16", "dp64:zero3 cp8:ring"),
    ("llama:layers=4,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16", "pp2:interleaved cp2:ring dp64 tp2:sp +m4"),
    ("lenet", "pp2:zb-v dp64 +m4 +amp_bf16"),
)


@pytest.mark.parametrize(("model", "plan"), DRY)
def test_a_dry_run_of_many_ranks_says_what_the_program_says(ranks: Ranks, model: str, plan: str) -> None:
    assignment = Assignment(model=model, plan=plan, batch=2048, dry=True)
    (report,) = ranks.run(assignment)
    found = traffic(expand(lower(assignment.setting)), 0, report.collectives)
    assert report.collectives
    assert found == TrafficMismatch((), ())


T5 = "t5:layers=2,hidden=32,heads=2,ffn=32,vocab=64,seq=16,dropout=0"


def test_a_dry_run_of_tables_that_several_stages_have(ranks: Ranks) -> None:
    """The table of words and that of distances lie in the encoder's stages and in the decoder's."""
    (report,) = ranks.run(Assignment(model=T5, plan="pp4:gpipe", batch=4, dry=True))
    assert {one.kind for one in report.collectives} == {"all-reduce", "send", "receive"}


def test_the_bias_of_a_decoder_is_made_where_it_is_read(ranks: Ranks) -> None:
    """The program sends it: 2 heads, 16 x 16 places."""
    assignment = Assignment(model=T5, plan="pp2:gpipe +m2", batch=4, dry=True)
    (report,) = ranks.run(assignment)
    found = traffic(expand(lower(assignment.setting)), 0, report.collectives)
    assert found.unexpected == ()
    assert {(one.kind, one.payload, one.count) for one in found.missing} == {("receive", 2048, 2), ("send", 2048, 2)}


def test_a_dry_run_of_experts_has_the_loads_of_the_program(ranks: Ranks) -> None:
    """Beside rows go the numbers of them, which the program leaves out."""
    model = "mixture:layers=2,hidden=64,heads=8,kv_heads=8,ffn=64,vocab=64,seq=16,experts=8,top_k=2"
    assignment = Assignment(model=model, plan="dp64:ep8 tp2:sp", batch=64, dry=True)
    (report,) = ranks.run(assignment)
    found = traffic(expand(lower(assignment.setting)), 0, report.collectives)
    assert found.missing == ()
    assert [(one.kind, one.payload, one.count) for one in found.unexpected] == [
        ("all-gather", 8, 2),
        ("all-to-all", 64, 2),
    ]


def test_a_dry_run_refuses_what_reads_answers(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="compressed gradients of other ranks are read"):
        ranks.run(Assignment(model="lenet", plan="dp2 +compress:1bit", batch=4, dry=True))
    with pytest.raises(BadInput, match="no step in common"):
        ranks.run(Assignment(model="lenet", plan="ps2:async", batch=4, optimizer="sgd", dry=True))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("pp2:1f1b +m2 +fp16", "gradients are finite"),
        ("pp2:1f1b dp2 +m2 +offload:optimizer,weights", "moves weights"),
        ("pp2:gpipe dp2 +m2 +compiled", "makes kernels"),
    ],
)
def test_a_dry_run_refuses_what_reads_numbers(ranks: Ranks, plan: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        ranks.run(Assignment(model="lenet", plan=plan, batch=4, dry=True))


def test_a_dry_run_of_rows_of_images(ranks: Ranks) -> None:
    padded = "vgg:convolutions=1/1/1/1/1,image=64,classes=10,width=8,pooled=1,dense=16,dropout=0"
    assignment = Assignment(model=padded, plan="spatial2", batch=4, dry=True)
    (report,) = ranks.run(assignment)
    assert report.collectives
    found = traffic(expand(lower(assignment.setting)), 0, report.collectives)
    assert {one.kind for one in (*found.unexpected, *found.missing)} == {"send", "receive"}
    page = dry_page(assignment, 2, report.collectives, found)
    assert "exchange" not in page and "Of rows between neighbours" in page
    # forward as predicted; backward three layers give back rows of half as many channels as their outputs have
    assert {(one.count, one.payload) for one in found.unexpected} == {(3, 4096)}
    assert {(one.count, one.payload) for one in found.missing} == {(3, 8192)}


def test_the_page_names_all_that_runs() -> None:
    page = (HERE.parents[1] / "docs" / "run.md").read_text()
    table = page[page.index("## What runs today") : page.index("## Two laws")]
    words = {
        "microbatches": "`+m16`",
        "precision": "`+bf16`",
        "batchnorm": "`+syncbn`",
        "bucket": "`+bucket:",
        "partitioned": "`+partitioned`",
        "compress": "`+compress:",
    }
    words |= {"overlap": "`+no-overlap`", "execution": "`+compiled`", "lora": "`+lora16`", "recompute": "`+recompute:"}
    words |= {"offload": "`+offload:", "base": "`+nf4`", "adapt": "`+adapt:"}
    words |= {"wide_adapters": "`+fp32-adapters`", "variant": "`+dora`", "imbalance": "`+imbalance1.5`"}
    words |= {"train": "`+train:", "prompt": "`+prompt20`"}
    for name in APPLIERS:
        assert words.get(name, f"`{name}") in table, name
