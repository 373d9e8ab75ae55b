"""Processes that foretell starts: fed, watched, and ended with all that they started."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

import foretell
from foretell import processes, trust
from foretell.processes import ChildProcess, ProcessEnded, RankFailed

LONG = 600.0
"""Seconds: what takes longer hangs."""


def python(program: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(program)]


SERVER = python("""
    import os, subprocess, sys
    from foretell.processes import answer_lines

    def answered(line):
        print("noise", flush=True)
        os.system("echo more noise; cat")  # which would read the next question
        return line.strip() * 2

    answer_lines(answered)
    sys.exit(7)
""")


def test_what_a_child_prints_and_reads_is_none_of_ours() -> None:
    with ChildProcess(SERVER, keep_errors=True) as child:
        child.tell(b"one\ntwo\n")
        assert [child.hear(LONG), child.hear(LONG), child.ask(b"x" * 10**6 + b"\n", LONG)] == [
            b"oneone",
            b"twotwo",
            b"x" * 2 * 10**6,
        ]
        child._process.stdin.close()  # type: ignore[union-attr]
        with pytest.raises(ProcessEnded) as ended:
            child.hear(LONG)
    assert ended.value.code == 7 and ended.value.said == "noise\nmore noise\n" * 3


def test_one_that_has_ended_is_told_with_its_code_and_last_words() -> None:
    with ChildProcess(python("import sys; sys.exit('no bread')"), keep_errors=True) as child:
        with pytest.raises(ProcessEnded) as ended:
            child.ask(b"?\n", LONG)
        assert (ended.value.code, ended.value.said) == (1, "no bread\n")
        with pytest.raises(ProcessEnded):
            child.ask(b"?\n", LONG)


def test_one_that_is_late_is_ended_with_what_it_started() -> None:
    program = python("""
        import subprocess, sys, time
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6000)"]).pid, flush=True)
        time.sleep(6000)
    """)
    with ChildProcess(program) as child:
        started = int(child.hear(LONG))
        with pytest.raises(TimeoutError):
            child.ask(b"?\n", 0.0)
        assert _runs(started)
    until = time.monotonic() + LONG
    while _runs(started) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _runs(started)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_takes_itself_for_nobodys_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_PROCID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/theirs{os.pathsep}")  # an empty entry is the current folder
    found = processes.environment({"OMP_NUM_THREADS": "3"})
    package = str(Path(foretell.__file__).parents[1])
    assert found == {
        **{name: value for name, value in os.environ.items() if name not in processes.launcher_variables()},
        "PYTHONPATH": f"{package}{os.pathsep}/theirs",
        "PYTHONSAFEPATH": "1",
        "FORETELL_TRUSTED": json.dumps(trust.written()),
        "OMP_NUM_THREADS": "3",
    }
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_PROCID", "TORCHELASTIC_RUN_ID"} & set(found)


def test_each_rank_answers_in_its_place() -> None:
    assert processes.each(lambda rank: {rank: (os.getpid() != os.getppid(),)}, 3, LONG) == [
        {rank: (True,)} for rank in range(3)
    ]


def test_the_first_rank_that_fails_is_named_and_the_others_are_ended() -> None:
    def fails(rank: int) -> None:
        time.sleep(6000 * abs(1 // (1 - rank)))

    with pytest.raises(RankFailed, match="rank 1 failed: ZeroDivisionError") as problem:
        processes.each(fails, 3, LONG)
    assert "in fails" in problem.value.trace
    with pytest.raises(RankFailed, match="rank 0 ended without an answer"):
        processes.each(lambda rank: os._exit(0), 1, LONG)
    with pytest.raises(RankFailed, match="rank 0 did not end in time"):
        processes.each(lambda rank: time.sleep(6000), 2, 0.0)
    with pytest.raises(RankFailed, match=r"rank 0 failed: .*object"):
        processes.each(lambda rank: lambda: rank, 1, LONG)


def test_the_last_of_several_to_leave_puts_variables_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads come and go: not the one that came last leaves first."""
    monkeypatch.delenv(trust.SAFE_PATH, raising=False)
    first, second = trust.importing_nothing_from_here(), trust.importing_nothing_from_here()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ[trust.SAFE_PATH] == "1"
    second.__exit__(None, None, None)
    assert trust.SAFE_PATH not in os.environ
