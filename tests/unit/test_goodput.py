"""Goodput by formula, and what the moments of a restarted run come to."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.cli.verbs.goodput import command
from foretell.errors import BadInput
from foretell.oracle.goodput import goodput
from foretell.runtime import restart_log
from foretell.runtime.restart_log import BEGAN, DIED, ENDED, PASSED, WROTE, Fate, RestartLog, RunEvent, restarts

TIMES = st.floats(1, 1e6)


@given(TIMES, st.floats(1e-3, 1e3), st.floats(0, 1e3), TIMES)
def test_no_interval_is_better_than_the_best(mtbf: float, dump: float, restart: float, every: float) -> None:
    """Daly's estimate is one: half a per cent may be left where writing is nearly as long as failures are apart."""
    assume(every + dump + restart <= 300 * mtbf and dump <= mtbf)
    found = goodput(mtbf, dump, restart, every)
    assert 0 < found.goodput < 1
    assert found.goodput <= found.best_goodput * 1.02
    assert found.interval == every


def test_the_published_example() -> None:
    """Daly 2006, figure 2: writing takes 5 minutes, failures are 24 h apart: about 2 h between checkpoints."""
    found = goodput(24 * 3600, 300)
    assert found.young_interval == pytest.approx(7200)
    assert found.best_interval == pytest.approx(7200 * (1 + (300 / 172800) ** 0.5 / 3 + 300 / 172800 / 9) - 300)


@pytest.mark.parametrize(("mtbf", "dump"), [(0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0)])
def test_times_that_are_none_are_refused(mtbf: float, dump: float) -> None:
    with pytest.raises(BadInput):
        goodput(mtbf, dump)


def test_the_verb_answers_and_says_what_is_missing() -> None:
    asked = ["--mtbf", "3h", "--checkpoint", "40s", "--restart", "5min", "--json"]
    found = json.loads(CliRunner().invoke(command, asked).stdout)
    assert found["goodput"] == found["best_goodput"] == goodput(10800, 40, 300).goodput
    missing = CliRunner().invoke(command, ["--mtbf", "3h"])
    assert isinstance(missing.exception, BadInput) and missing.exception.where == "--checkpoint"


@pytest.mark.parametrize(("asked", "failures", "mtbf"), [(0.0, 2, 40.0), (30.0, 2, 30.0)])
def test_the_mean_time_between_failures_follows_from_the_run(
    asked: float, failures: int, mtbf: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Restarts are no time in which a failure could come."""
    (tmp_path / "run.json").touch()
    monkeypatch.setattr("foretell.cli.verbs.goodput._lives", lambda record: _life(asked, failures))
    found = json.loads(CliRunner().invoke(command, [str(tmp_path / "run.json"), "--json"]).stdout)
    assert found["mtbf"] == mtbf


def test_a_run_without_a_failure_does_not_say_how_often_one_comes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run.json").touch()
    monkeypatch.setattr("foretell.cli.verbs.goodput._lives", lambda record: _life(0.0, 0))
    found = CliRunner().invoke(command, [str(tmp_path / "run.json")])
    assert isinstance(found.exception, BadInput) and "no failure" in found.exception.what


def test_failures_that_are_expected_fit_into_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None comes while the run gets over another: even where that takes much longer than they are apart."""
    (tmp_path / "run.json").touch()
    monkeypatch.setattr("foretell.cli.verbs.goodput._lives", lambda record: _life(2.0, 2))
    page = CliRunner().invoke(command, [str(tmp_path / "run.json"), "--every", "2s"]).stdout
    expected = next(line.split()[1] for line in page.splitlines()[5:] if line.startswith("failures"))
    wall = 60.0 / goodput(2.0, 1.0, 10.0, 2.0, in_restarts=False).goodput
    assert float(expected) == pytest.approx(wall / 12.0, abs=0.05)
    assert float(expected) * 10.0 < wall


@pytest.mark.parametrize(
    "option", [("--every", "20s"), ("--restart", "7s"), ("--checkpoint", "3s", "--mtbf", "50s"), ()], ids=str
)
def test_a_time_that_is_given_takes_the_place_of_its_own(
    option: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run.json").touch()
    monkeypatch.setattr("foretell.cli.verbs.goodput._lives", lambda record: _life(30.0, 2))
    given = dict(zip(option[::2], (float(text[:-1]) for text in option[1::2]), strict=True))
    times = {"--mtbf": 30.0, "--checkpoint": 1.0, "--restart": 10.0, "--every": 15.0} | given
    found = json.loads(CliRunner().invoke(command, [str(tmp_path / "run.json"), *option, "--json"]).stdout)
    assert [found[name] for name in ("mtbf", "checkpoint_seconds", "restart_seconds", "interval")] == list(
        times.values()
    )


def _life(mtbf: float, failures: int) -> RestartLog:
    return RestartLog(
        failures=failures,
        checkpoints=4,
        seconds=100.0,
        productive_seconds=60.0,
        goodput=0.6,
        checkpoint_seconds=1.0,
        restart_seconds=10.0,
        lost_seconds=16.0,
        interval=15.0,
        mtbf=mtbf,
    )


# the lives of a run


def test_seconds_of_a_run_add_up() -> None:
    moments = [
        RunEvent(BEGAN, 0, 100.0),
        RunEvent(WROTE, 5, 111.0, seconds=1.0),
        RunEvent(DIED, 8, 117.0, rank=1),
        RunEvent(BEGAN, 5, 120.0),
        RunEvent(WROTE, 10, 131.0, seconds=1.0),
        RunEvent(ENDED, 10, 131.5),
    ]
    found = restarts(moments, [2.0] * 10, 5, 60.0)
    assert (found.failures, found.checkpoints, found.seconds) == (1, 2, 31.5)
    assert (found.productive_seconds, found.restart_seconds, found.checkpoint_seconds) == (20.0, 3.0, 1.0)
    assert found.lost_seconds == pytest.approx(31.5 - 20 - 3 - 2)
    assert found.interval == 10.0
    assert found.goodput == pytest.approx(20 / 31.5)


def test_a_run_that_went_on_the_next_day_did_not_take_a_day() -> None:
    moments = [
        RunEvent(BEGAN, 0, 0.0),
        RunEvent(ENDED, 5, 10.0),
        RunEvent(BEGAN, 5, 86400.0),
        RunEvent(ENDED, 10, 86410.0),
    ]
    found = restarts(moments, [1.0] * 10, 5, 0.0)
    assert found.seconds == 20.0
    assert found.failures == 0


def test_a_run_that_died_at_once_has_no_goodput() -> None:
    found = restarts([RunEvent(BEGAN, 0, 5.0)], [], 5, 0.0)
    assert (found.goodput, found.seconds, found.interval) == (0.0, 0.0, 0.0)


def test_deaths_that_never_came_are_told() -> None:
    moments = [RunEvent(BEGAN, 0, 0.0), RunEvent(DIED, 3, 3.0), RunEvent(BEGAN, 0, 4.0), RunEvent(ENDED, 6, 10.0)]
    assert restarts(moments, [1.0] * 6, 5, 0.0, (3, 40)).not_reached == (40,)
    assert restarts(moments, [1.0] * 6, 5, 0.0, (3,)).not_reached == ()


def test_a_clock_that_is_set_back_takes_no_seconds_from_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([(50.0, 9000.0), (60.0, 5410.0), (75.0, 5425.0)])  # monotonic, and an hour back on the wall

    def note(what: str, step: int) -> None:
        steady, wall = next(moments)
        monkeypatch.setattr(restart_log.time, "monotonic", lambda: steady)
        monkeypatch.setattr(restart_log.time, "time", lambda: wall)
        restart_log.note(tmp_path, what, step)

    note(BEGAN, 0)
    note(WROTE, 5)
    monkeypatch.setattr(restart_log, "_boot", lambda: "another start of the machine")
    note(ENDED, 10)
    found = restarts(restart_log.events(tmp_path), [2.0] * 10, 5, 0.0)
    assert found.seconds == 10.0 + 15.0  # between two boots there is only the clock on the wall
    back = [RunEvent(BEGAN, 0, 9.0, boot="one", date=9000.0), RunEvent(ENDED, 5, 3.0, boot="two", date=5400.0)]
    assert restarts(back, [2.0] * 5, 5, 0.0).seconds == 0.0


def test_durations_are_of_clocks_that_nobody_sets() -> None:
    source = Path(restart_log.__file__).parents[1]
    found = {file.name for file in source.rglob("*.py") if re.search(r"\btime\.time(_ns)?\(\)", file.read_text())}
    assert found == {"restart_log.py"}


def test_checkpoints_that_were_passed_over_are_told_and_are_no_restart() -> None:
    moments = [RunEvent(BEGAN, 0, 0.0), RunEvent(ENDED, 5, 5.0), RunEvent(PASSED, 5, 6.0, why="half of it is gone")]
    found = restarts([*moments, RunEvent(BEGAN, 4, 7.0), RunEvent(ENDED, 6, 9.0)], [1.0] * 6, 2, 0.0)
    assert (found.failures, found.seconds, found.passed_over) == (0, 7.0, ("step 5: half of it is gone",))


def test_moments_are_read_as_they_were_written_and_a_cut_line_is_none(tmp_path: Path) -> None:
    assert restart_log.events(tmp_path) == []
    restart_log.note(tmp_path, BEGAN, 3)
    restart_log.note(tmp_path, DIED, 4, rank=1)
    with (tmp_path / restart_log.FILE).open("ab") as file:
        file.write(b'{"what":"wro')
    assert [(one.what, one.step, one.rank) for one in restart_log.events(tmp_path)] == [(BEGAN, 3, 0), (DIED, 4, 1)]
    restart_log.note(tmp_path, BEGAN, 5)
    assert [one.step for one in restart_log.events(tmp_path)] == [3, 4, 5]


@given(st.integers(0, 10), st.integers(1, 8), st.integers(0, 5))
def test_a_fate_is_the_same_for_the_same_seed(seed: int, ranks: int, life: int) -> None:
    fate = Fate(steps=(3, 7), mtbf=10.0, seed=seed)
    doom = fate.of_life(life, ranks)
    assert doom == fate.of_life(life, ranks)
    assert 0 <= doom.rank < ranks
    assert doom.step == ((3, 7)[life] if life < 2 else -1)


def test_failures_at_random_come_as_often_as_asked_and_daly_expects_the_run_that_follows() -> None:
    """A run in one process: the mean of many is what the formula says, failures in restarts included."""
    mtbf, dump, restart, every, work = 50.0, 1.0, 2.0, 10.0, 200.0
    draws = random.Random(7)
    total = sum(_played(draws, mtbf, dump, restart, every, work) for _ in range(400)) / 400
    assert work / total == pytest.approx(goodput(mtbf, dump, restart, every).goodput, rel=0.03)


def test_restarts_that_always_go_well_cost_less() -> None:
    daly, spared = (goodput(50.0, 1.0, 20.0, 10.0, in_restarts=one).goodput for one in (True, False))
    draws = random.Random(3)
    total = sum(_played(draws, 50.0, 1.0, 20.0, 10.0, 200.0, spared=True) for _ in range(400)) / 400
    assert spared > daly
    assert 200.0 / total == pytest.approx(spared, rel=0.03)


def _played(
    draws: random.Random, mtbf: float, dump: float, restart: float, every: float, work: float, spared: bool = False
) -> float:
    """Seconds of one run whose failures are drawn."""
    now = done = 0.0
    fails = draws.expovariate(1 / mtbf)
    while done < work:
        need = every + dump
        if fails > need:
            now, fails, done = now + need, fails - need, done + every
            continue
        now, fails = now + fails, draws.expovariate(1 / mtbf)
        while fails < restart and not spared:  # and one while it comes back
            now, fails = now + fails, draws.expovariate(1 / mtbf)
        now, fails = now + restart, fails - (0.0 if spared else restart)
    return now


# a model on a cluster

ON_CLUSTER = ["llama3-70b", "--on", "1024xh100", "--device-mtbf", "50000h", "--storage", "20 GB/s"]


def test_a_model_on_a_cluster_has_its_checkpoint_and_its_failures() -> None:
    found = json.loads(CliRunner().invoke(command, [*ON_CLUSTER, "--restart", "10min", "--json"]).stdout)
    weights = 70_553_706_496  # published; bf16 with fp32 master copies and two states: 14 bytes of each
    assert found["job"]["checkpoint_bytes"] == 14 * weights
    assert found["checkpoint_seconds"] == pytest.approx(14 * weights / 20e9)
    assert found["mtbf"] == pytest.approx(50_000 * 3600 / 1024)
    assert found["goodput"] == goodput(found["mtbf"], found["checkpoint_seconds"], 600).goodput
    page = CliRunner().invoke(command, ON_CLUSTER).stdout
    assert "1,024 devices of 1024xh100, 128 nodes" in page and "920 GiB" in page


def test_a_plan_says_which_devices_can_fail_and_what_is_kept() -> None:
    alone = json.loads(CliRunner().invoke(command, [*ON_CLUSTER, "--json"]).stdout)
    half = [*ON_CLUSTER, "--plan", "pp4:1f1b dp16:zero1 tp8:sp +m32 +bf16", "--node-mtbf", "10000h", "--json"]
    found = json.loads(CliRunner().invoke(command, half).stdout)
    assert found["job"]["ranks"] == 512 and found["job"]["nodes"] == 64
    assert found["mtbf"] == pytest.approx(3600 / (512 / 50_000 + 64 / 10_000))
    assert found["job"]["checkpoint_bytes"] == alone["job"]["checkpoint_bytes"]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["llama3-70b"], "--on"),
        (["--on", "8xh100"], "MODEL"),
        (["llama3-70b", "--on", "8xh100", "--storage", "1 GB/s"], "--mtbf, --device-mtbf"),
        (["llama3-70b", "--on", "8xh100", "--mtbf", "3h"], "--checkpoint, --storage"),
        (["llama3-70b", "--on", "8xh100", "--mtbf", "3h", "--storage", "fast"], "--storage"),
        (["--mtbf", "3h", "--storage", "1 GB/s"], "--storage"),
        (["--device-mtbf", "3h", "--checkpoint", "40s"], "--device-mtbf"),
    ],
)
def test_what_a_model_on_a_cluster_lacks_is_named(words: list[str], where: str) -> None:
    problem = CliRunner().invoke(command, words).exception
    assert isinstance(problem, BadInput) and problem.where == where and problem.fix
