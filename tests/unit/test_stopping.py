"""A signal ends a command as Ctrl-C does: it says what was saved, leaves nothing behind, and the next one goes on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from foretell.cli import stopping
from foretell.cli.stopping import SignalReceived, Stopped, exit_code, stop_signals, telling, told
from foretell.errors import BadInput
from foretell.processes import ProcessEnded, same_signals
from foretell.runtime.assignment import Assignment, RunStopped
from foretell.runtime.launch import Ranks
from foretell.runtime.restart_log import WROTE, note
from foretell.scratch import LOCK, _remove_abandoned, hold, scratch

LONGEST = 400.0
"""Seconds: what takes longer hangs."""

SETUP = """
import os, signal, sys
sys.argv = ["foretell", *{words!r}]
from foretell.cli import main, stopping
stopping.AGAIN = {longest}  # a busy machine takes longer to end, and no wish comes twice
def stop(*_, **more):
    for one in {signals!r}:
        os.kill(os.getpid(), one)
"""


def as_in_a_terminal(ignored: tuple[signal.Signals, ...] = ()) -> None:
    """Signals of a new process: whoever runs the tests may ignore some (nohup, a job in the background)."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN if one in ignored else signal.SIG_DFL)


def stopped(
    code: str, words: list[str], folder: Path, *signals: signal.Signals, ignored: tuple[signal.Signals, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """A command whose own code sends the signals, at a place that `code` chooses."""
    (folder / "tmp").mkdir(exist_ok=True)
    text = SETUP.format(words=words, signals=[int(one) for one in signals or (signal.SIGTERM,)], longest=LONGEST)
    (folder / "stopped_command.py").write_text(f"{text}\n{code}\nmain()")
    return subprocess.run(
        [sys.executable, "-m", "stopped_command"],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "FORETELL_RECORDS": str(folder / "records")},
        preexec_fn=lambda: as_in_a_terminal(ignored),
    )


def nothing_left(folder: Path) -> bool:
    return [one.name for one in (folder / "tmp").iterdir() if not one.name.startswith("torchinductor")] == []


LISTED = ["list", "strategies"]
IN_LIST = "import foretell.cli.verbs.list as verb; verb.command.callback = stop"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_exit_code_is_that_of_the_signal(number: signal.Signals, tmp_path: Path) -> None:
    ran = stopped(IN_LIST, LISTED, tmp_path, number)
    assert ran.returncode == 128 + number
    said = "interrupted" if number == signal.SIGINT else f"stopped by {number.name}"
    assert ran.stderr.strip() == f"foretell: {said}"


def test_the_same_signal_twice_is_one_wish(tmp_path: Path) -> None:
    """`timeout` sends it to the process, and again to its group."""
    ran = stopped(IN_LIST, LISTED, tmp_path, signal.SIGTERM, signal.SIGTERM)
    assert (ran.returncode, ran.stderr.strip()) == (143, "foretell: stopped by SIGTERM")


def test_a_signal_in_code_that_is_made_of_text_has_its_exit_code_too(tmp_path: Path) -> None:
    """Where a plain KeyboardInterrupt passes through exec, as in dataclasses, Python ends itself by SIGINT later."""
    ran = stopped(IN_LIST.replace("= stop", "= lambda **_: exec('stop()', globals())"), LISTED, tmp_path)
    assert (ran.returncode, ran.stderr.strip()) == (143, "foretell: stopped by SIGTERM")


def test_what_somebody_ignores_stays_ignored(tmp_path: Path) -> None:
    ran = stopped(IN_LIST, LISTED, tmp_path, signal.SIGHUP, ignored=(signal.SIGHUP,))
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_sweep_keeps_its_cells_and_goes_on(tmp_path: Path) -> None:
    words = ["sweep", "--model", "lenet", "--on", "8xh100", "--batch", "64..256", "--plan", "dp8"]
    words += ["--out", "kept", "--jobs", "1", "--json"]
    after_one = "from foretell.cli.progress import Progress; Progress.cells = lambda self, done, *_: done and stop()"
    ran = stopped(after_one, words, tmp_path)
    assert ran.returncode == 143
    assert "1 of 3 cells are answered and kept in kept: the same command goes on" in " ".join(ran.stderr.split())
    assert len(list((tmp_path / "kept").glob("*.json"))) == 1
    again = json.loads(stopped("", words, tmp_path).stdout)
    assert (again["kept"], again["answered"], again["complete"]) == (1, 2, True)
    assert nothing_left(tmp_path)


def test_a_comparison_keeps_its_rows_and_goes_on(tmp_path: Path) -> None:
    words = ["bench", "--engine", "ddp,gpipe", "--pair", "image", "--ranks", "2", "--out", "study", "--json"]
    unmeasured = (
        "import foretell.bench.matrix as m; m.measured = lambda q, *a: q.row(status='failed', reason='told so')"
    )
    after_one = f"{unmeasured}; real = m.study.keep; m.study.keep = lambda *a: (real(*a), stop())"
    ran = stopped(after_one, words, tmp_path)
    assert ran.returncode == 143
    assert "stopped by SIGTERM: 1 of 2 rows are kept in study" in ran.stderr
    assert json.loads(ran.stdout)["error"]["fix"] == "the same command, which goes on from there"
    assert len(list((tmp_path / "study" / "rows").iterdir())) == 1
    again = stopped(unmeasured, words, tmp_path)
    assert len(json.loads(again.stdout)["rows"]) == 2
    assert nothing_left(tmp_path)


def test_a_calibration_keeps_its_samples_and_goes_on(tmp_path: Path) -> None:
    words = ["calibrate", "--quick", "--only", "launch", "--device", "cpu", "--out", "here.json", "--json"]
    after_one = "import foretell.calibration.measure as m; real = m.SampleJournal.add\n"
    after_one += "m.SampleJournal.add = lambda *a: (real(*a), stop())"
    ran = stopped(after_one, words, tmp_path)
    assert ran.returncode == 143
    assert "stopped by SIGTERM: 1 samples are kept in here.json.part" in ran.stderr
    again = stopped("", [*words, "--resume"], tmp_path)
    assert again.returncode == 0 and json.loads(again.stdout)["samples"] > 1
    assert not (tmp_path / "here.json.part").exists()
    assert nothing_left(tmp_path)


AFTER_A_CHECKPOINT = """
import time
from pathlib import Path
from foretell.runtime import launch, restart_log
def hear(self, seconds=None):
    while restart_log.last_checkpoint(Path("kept")) is None:
        time.sleep(0.02)
    stop()
launch.ChildProcess.hear = hear
"""


def test_a_run_keeps_what_it_measured_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    words = ["run", "lenet", "--plan", "dp2", "--batch", "8", "--device", "cpu", "--records", "records"]
    words += ["--checkpoint", "kept", "--checkpoint-every", "2", "--json", "--steps"]
    ran = stopped(AFTER_A_CHECKPOINT, [*words, "1000000"], tmp_path)
    assert ran.returncode == 143, ran.stderr
    said = json.loads(ran.stdout)["error"]
    form = r"stopped by SIGTERM: (\d+) steps were measured until then: (.*); step (\d+) is kept in kept"
    found = re.fullmatch(form, said["what"])
    assert found and int(found[1]) >= int(found[3]) >= 2
    record = json.loads((tmp_path / found[2]).read_text())
    assert (record["kind"], record["content"]["failure"]) == ("failed-run", "interrupted")
    assert nothing_left(tmp_path)
    again = stopped("", [*words, str(int(found[3]) + 2)], tmp_path)
    assert again.returncode == 0, again.stderr
    lives = json.loads(again.stdout)["lives"]
    assert lives["failures"] == 1 and lives["seconds"] > 0
    assert nothing_left(tmp_path)


def test_a_simulation_says_that_nothing_was_saved_and_an_old_report_stays(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    words = ["simulate", "lenet", "--on", "4xv100-16", "--workers", "4", "--html", "report.html"]
    ran = stopped("from foretell.cli.progress import Progress; Progress.runs = stop", words, tmp_path)
    assert ran.returncode == 143
    assert "stopped by SIGTERM: nothing was saved" in ran.stderr
    assert (tmp_path / "report.html").read_text() == "old"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("asked", [False, True])
def test_a_page_that_is_served_leaves_no_folder(number: signal.Signals, asked: bool, tmp_path: Path) -> None:
    """Signalled once its address is printed, or once it answers: it ends the same way."""
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "foretell", "serve", "--port", "0", "--workers", "1", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,
    ) as server:
        assert server.stdout
        address = json.loads(server.stdout.readline())["url"]
        if asked:
            with contextlib.suppress(HTTPError):
                urlopen(address, timeout=LONGEST).close()
        server.send_signal(number)
        _, said = server.communicate(timeout=LONGEST)
    assert server.returncode == 128 + number
    how = "interrupted" if number == signal.SIGINT else f"stopped by {number.name}"
    assert said.strip() == f"foretell: {how}: the page is closed, and kept nothing"
    assert nothing_left(tmp_path)


@pytest.fixture
def untouched() -> Iterator[None]:
    """Signals as a fresh process has them, whoever handles them here."""
    before = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGALRM)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def test_what_goes_on_all_the_same_is_interrupted_again(untouched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "AGAIN", LONGEST)
    monkeypatch.setattr(stopping, "_received", [])
    with pytest.raises(KeyboardInterrupt), stop_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:  # swallowed by somebody
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= stopping.AGAIN
            os.kill(os.getpid(), signal.SIGALRM)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert (exit_code(130), exit_code(0), exit_code(2)) == (143, 143, 2)  # a best answer so far is not the answer
    stopping._received.clear()
    assert exit_code(130) == 130


def test_the_innermost_says_what_was_saved() -> None:
    with pytest.raises(Stopped) as caught, telling(lambda: ("outer", "")), telling(lambda: ("inner", "go on")):
        raise KeyboardInterrupt
    assert told(caught.value) == {"what": "interrupted: inner", "fix": "go on"}


@pytest.mark.parametrize(("ours", "told"), [(True, RunStopped), (False, BadInput)])
def test_a_child_that_was_stopped_with_us_is_an_interruption(
    ours: bool, told: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> bytes:
        raise ProcessEnded(-signal.SIGTERM, "")

    def our_signal(seconds: float) -> None:
        if ours:
            raise SignalReceived

    ranks = Ranks()
    ranks.folder = tmp_path
    ranks._child = SimpleNamespace(ask=ended, kill=lambda: None)  # type: ignore[assignment]
    monkeypatch.setattr("foretell.runtime.launch.time.sleep", our_signal)
    with pytest.raises(told):
        ranks.outcome(Assignment(model="lenet", plan="dp2", batch=4))


# folders of processes that were killed


def test_a_folder_that_nobody_holds_goes_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, other = tmp_path / "foretell-run-killed", tmp_path / "foretell-my-notes"
    for folder in (killed, other):
        folder.mkdir()
        (folder / "file").touch()
    (killed / LOCK).touch()  # as SIGKILL leaves it
    with scratch("one") as first, scratch("two") as second:
        assert sorted(tmp_path.iterdir()) == sorted((first, second, other))
    assert sorted(tmp_path.iterdir()) == [other]


def test_a_folder_that_has_just_gone_keeps_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foretell-killed").mkdir()
    (tmp_path / "foretell-killed" / LOCK).touch()
    found = [tmp_path / "foretell-gone", tmp_path / "foretell-killed"]
    monkeypatch.setattr(Path, "glob", lambda *_: iter(found))
    _remove_abandoned(tmp_path)
    assert not found[1].exists()


def test_a_package_that_takes_a_signal_gives_it_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with same_signals():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) == before


def test_one_process_holds_a_file(tmp_path: Path) -> None:
    handles = [os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(3)]
    assert [hold(handles[0]), hold(handles[1])] == [True, False]
    os.close(handles[0])
    assert hold(handles[2])


IN_A_WAIT = """
import sys
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import _end_at_once
_end_at_once(Assignment(model="lenet", plan="dp2", checkpoints={folder!r}), {rank})
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("rank", "said"), [(0, "foretell: stopped by SIGTERM: step 4 is kept in {}"), (1, "")])
def test_a_rank_of_torchrun_ends_at_once_and_the_first_says_what_is_kept(rank: int, said: str, tmp_path: Path) -> None:
    """The main thread waits, as in a collective: no handler of Python's would run there."""
    note(tmp_path, WROTE, 4)
    code = IN_A_WAIT.format(folder=str(tmp_path), rank=rank)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.terminate()
        process.wait(LONGEST)  # its input stays open: nothing else ends it
        heard = process.stderr.read() if process.stderr else ""
    assert process.returncode == 143
    assert heard.strip() == said.format(tmp_path)
