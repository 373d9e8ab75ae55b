"""Comparisons without processes: rows and studies, going on after a kill, engines, batch rules and reasons."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from answers import documented
from foretell.bench import engine, environments, matrix, measuring, pair, rank_pool, study
from foretell.bench.engine import Engine
from foretell.bench.group import groups
from foretell.bench.matrix import BenchMatrix, compare
from foretell.bench.question import BenchQuestion
from foretell.bench.reading import lines, noise
from foretell.bench.row import ABSENT, FAILED, OK, UNFIT, BenchRow, LearningPoint, PredictedRow, told
from foretell.bench.study import About, BenchStudy
from foretell.cli import bench_pages
from foretell.cli.command import cli
from foretell.errors import BadInput, ForetellError
from foretell.plan.text import parse
from foretell.runtime.assignment import Failure, Report, RunOutcome
from foretell.runtime.place import RankPlace
from law_examples import reached

ABOUT = About(command="foretell bench", created="2026-01-01T00:00:00", foretell="0", machine="a core", cores=2)


def _row(engine: str = "ddp", **fields: Any) -> BenchRow:
    usual: dict[str, Any] = {"pair": "image", "ranks": 2, "seed": 0, "batch_rule": "survey", "batch": 64}
    usual |= {"epoch_samples": 640, "step_seconds": 0.5, "fingerprint": engine, "losses": (2.0, 1.0)}
    return BenchRow(engine=engine, **(usual | fields))


# rows and studies


def test_what_follows_from_a_row() -> None:
    curve = tuple(
        LearningPoint(step=at, epoch=at / 10, seconds=30.0 * at, loss=1.0, metric=metric)
        for at, metric in ((1, 0.2), (2, 0.8), (3, 0.7))
    )
    row = _row(phases={"forward": 0.3, "exposed.dp": 0.2}, memory_by_rank=(10, 12), curve=curve, target=0.75)
    assert row.epoch_seconds == 5.0 and row.samples_per_second == 128.0 and row.memory_bytes == 12
    assert row.communication_share == pytest.approx(0.4)
    assert row.target_seconds == 60.0 and curve[1].minutes == 1.0
    assert told(row)["epoch_seconds"] == 5.0
    assert told(_row(status=FAILED, step_seconds=0.0))["epoch_seconds"] is None
    assert _row(curve=curve, target=0.9).target_seconds is None


@given(
    rows=st.lists(
        st.builds(
            _row,
            engine=st.sampled_from(["ddp", "gpipe"]),
            fingerprint=st.text("abcdef0123456789", min_size=4, max_size=10),
            status=st.sampled_from([OK, ABSENT, UNFIT, FAILED]),
            step_seconds=st.floats(1e-6, 1e3),
            losses=st.lists(st.floats(-10, 10)).map(tuple),
            memory_by_rank=st.lists(st.integers(0, 2**40)).map(tuple),
        ),
        max_size=4,
    )
)
def test_rows_come_back_as_they_were(rows: list[BenchRow], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("study")
    study.begin(folder, ABOUT)
    for row in rows:
        study.keep(folder, row)
    last = {row.fingerprint: row for row in rows}
    assert {row.fingerprint for row in study.read(folder).rows} == set(last)
    assert all(row in rows for row in study.read(folder).rows)
    assert study.read(folder).about == ABOUT


def test_a_folder_that_is_no_study_and_a_row_that_is_broken_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no study"):
        study.read(tmp_path)
    study.begin(tmp_path, ABOUT)
    (tmp_path / "rows" / "x.json").write_text('{"engine": ')
    poisoned = study.keep(tmp_path, _row("gpipe", rate=float("nan")))  # JSON has no such number
    study.keep(tmp_path, _row())
    found = study.read(tmp_path)
    assert [row.engine for row in found.rows] == ["ddp"]
    assert [told.split()[0] for told in found.unread] == [poisoned.name, "x.json"]
    shown = CliRunner().invoke(cli, ["bench", "--show", str(tmp_path)])
    assert shown.exit_code == 0 and poisoned.name in shown.output and "ddp" in shown.output


# going on


class _Killed(BaseException):
    pass


@given(kills=st.lists(st.integers(0, 6), max_size=4))
def test_killed_anywhere_and_started_again_it_repeats_and_loses_nothing(
    kills: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("study")
    questions = BenchMatrix(["ddp", "gpipe"], ["image"], (1, 2), (0, 1)).questions()
    asked: list[str] = []
    budget = 0

    def answer(question: BenchQuestion, *_: Any) -> BenchRow:
        nonlocal budget
        if budget == 0:
            raise _Killed
        budget -= 1
        asked.append(question.fingerprint)
        return question.row(status=OK, step_seconds=1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix, "measured", answer)
        for allowed in [*kills, len(questions)]:
            budget = allowed
            try:
                rows = list(compare(questions, folder, "foretell bench"))
            except _Killed:
                rows = []
    assert len(asked) == len(set(asked)) == len(questions)
    assert {row.fingerprint for row in rows} == {one.fingerprint for one in questions}
    assert not list(folder.rglob("*.part"))


def _comparing(folder: Path) -> None:
    """All rows of a comparison whose every answer takes a moment, and is a long file."""

    def answer(question: BenchQuestion, *_: Any) -> BenchRow:
        time.sleep(0.002)
        with (folder / "asked").open("a") as notes:
            notes.write(f"{question.fingerprint}\n")
        return question.row(status=OK, step_seconds=1.0, losses=tuple(range(2000)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix, "measured", answer)
        list(compare(_MANY, folder, "foretell bench"))


_MANY = BenchMatrix(["ddp", "gpipe"], ["image"], (1, 2), range(8)).questions()


def test_a_process_that_is_killed_at_any_moment_leaves_whole_rows_and_the_next_goes_on(tmp_path: Path) -> None:
    random, kills = Random(0), 12
    for _ in range(kills):
        child = os.fork()
        if not child:
            try:
                _comparing(tmp_path)
            finally:  # an error must not go on as a second run of the tests
                os._exit(0)
        time.sleep(random.uniform(0.001, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert not (tmp_path / study.ABOUT).exists() or study.read(tmp_path).unread == ()
    _comparing(tmp_path)
    assert {row.fingerprint for row in study.read(tmp_path).rows} == {one.fingerprint for one in _MANY}
    repeated = len((tmp_path / "asked").read_text().split()) - len(_MANY)
    assert repeated <= kills  # what was being measured when it died, and nothing else


def test_what_is_absent_is_asked_again_and_what_failed_when_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = BenchMatrix(["ddp", "gpipe", "filter"], ["image"], (2,)).questions()
    status = {"ddp": OK, "gpipe": ABSENT, "filter": FAILED}
    asked: list[str] = []

    def answer(question: BenchQuestion, *_: Any) -> BenchRow:
        asked.append(question.engine)
        return question.row(status=status[question.engine])

    monkeypatch.setattr(matrix, "measured", answer)
    for again, expected in ((False, ["ddp", "gpipe", "filter"]), (False, ["gpipe"]), (True, ["gpipe", "filter"])):
        asked.clear()
        assert len(list(compare(questions, tmp_path, "foretell bench", again=again))) == 3
        assert asked == expected


def test_no_row_begins_that_would_end_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "measured", lambda question, *_: question.row(status=OK))
    assert list(compare(BenchMatrix(["ddp"], ["image"], (1, 2)).questions(), tmp_path, "x", seconds=-1.0)) == []


def test_a_row_has_no_more_time_than_is_left_and_one_without_a_fair_time_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []

    def late(question: BenchQuestion, starter: Any, seconds: float) -> BenchRow:
        allowed.append(seconds)
        return question.row(status=FAILED, reason="late", wall_seconds=seconds)

    monkeypatch.setattr(matrix, "measured", late)
    questions = BenchMatrix(["ddp"], ["image"], (1,)).questions()
    assert list(compare(questions, tmp_path, "x", seconds=5.0)) == [] and study.kept(tmp_path) == {}
    assert len(list(compare(questions, tmp_path, "x", seconds=300.0))) == 1
    assert allowed[0] == matrix.LEAST_SECONDS and 30.0 < allowed[1] <= 300.0


def test_a_loss_that_is_no_number_is_a_failure_that_can_be_read_again() -> None:
    point = LearningPoint(step=1, epoch=1.0, seconds=1.0, loss=float("inf"), metric=None)
    for losses, curve in (((1.0, float("nan")), ()), ((1.0,), (point,))):
        found = measuring._diverged({"losses": losses, "curve": curve})  # pyright: ignore[reportPrivateUsage]
        assert found is not None and found["status"] == FAILED and "--rate" in found["fix"]
    assert measuring._diverged({"losses": (1.0,), "curve": ()}) is None  # pyright: ignore[reportPrivateUsage]


# engines


@pytest.mark.parametrize("name", engine.names())
def test_every_engine_is_a_plan_of_its_ranks(name: str) -> None:
    for ranks in (2, 4, 8):
        asked = BenchQuestion(engine=name, pair="image", ranks=ranks)
        if ranks < asked.engine_asked.least:
            continue
        assert parse(asked.texts.plan).ranks == ranks
        assert "{" not in asked.texts.runs + "".join(asked.texts.environment.values())
        assert asked.engine_asked.title and asked.row().title


def test_engines_that_should_learn_the_same_see_the_same_batches() -> None:
    for rule, per in (("survey", 4), ("fixed", 1)):
        sizes = {
            BenchQuestion(engine=name, pair="language", ranks=4, batch_rule=rule).assignment().batch
            for name in engine.names()
        }
        assert sizes == {pair.pair("language").batch * per}
    with pytest.raises(BadInput, match="no batch rule"):
        BenchQuestion(engine="ddp", pair="image", ranks=2, batch_rule="odd").assignment()


def test_micro_batches_follow_the_survey() -> None:
    assert BenchQuestion(engine="gpipe", pair="image", ranks=2).texts.plan == "pp2:gpipe +m8"
    assert BenchQuestion(engine="stash", pair="image", ranks=4).texts.plan == "pp4:stash +m4"


def test_a_rate_may_grow_with_the_batch() -> None:
    asked = BenchQuestion(engine="ddp", pair="image", ranks=4, scaled=True, warmup=5)
    assert asked.assignment().rate_batch == 32 and asked.assignment().warmup == 5
    assert asked.row().rate == pytest.approx(4 * pair.pair("image").rate)


def test_an_answer_that_may_differ_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    one = BenchQuestion(engine="ddp", pair="image", ranks=2)
    others = [
        BenchQuestion(engine="ddp", pair="image", ranks=2, seed=1),
        BenchQuestion(engine="ddp", pair="image", ranks=4),
    ]
    others += [BenchQuestion(engine="ddp", pair="image", ranks=2, rate=0.1)]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert one.fingerprint == BenchQuestion(engine="ddp", pair="image", ranks=2).fingerprint
    monkeypatch.setattr(engine, "PER_RANK", 8)  # so the same words mean another plan
    pipes = [BenchQuestion(engine="gpipe", pair="image", ranks=2).fingerprint]
    monkeypatch.undo()
    assert BenchQuestion(engine="gpipe", pair="image", ranks=2).fingerprint not in pipes


def test_a_quick_comparison_has_enough_engines_and_seeds() -> None:
    questions = matrix.quick()
    for name in ("image", "language"):
        assert len({one.engine for one in questions if one.pair == name and one.ranks == 2}) >= 8
    assert {one.seed for one in questions} == {0, 1, 2}
    assert {one.seed for one in questions[: len(questions) // 3]} == {0}


def test_what_learns_in_a_way_of_its_own_has_more_seeds_before_others() -> None:
    """All others have the losses of the reference."""
    own = [one.engine == "ddp" or not one.engine_asked.synchronous for one in matrix.quick() if one.seed]
    assert own == sorted(own, reverse=True)
    assert {one.engine for one in matrix.quick() if not one.engine_asked.synchronous} == {"stash", "hivemind"}


def test_plug_ins_are_engines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SimpleNamespace(ENGINE=Engine(title="mine", plan="dp{n}"))
    entry = SimpleNamespace(name="mine", load=lambda: mine)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == engine.PLUG_INS else [])
    assert "mine" in engine.names()
    assert engine.engine("mine").title == "mine"
    with pytest.raises(BadInput, match="no engine is called"):
        engine.engine("nobodys")


# reasons


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path))

    def run(*_: Any) -> None:
        raise AssertionError("ranks were started")

    monkeypatch.setattr(measuring.Starter, "run", run)
    yield


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("name", ["deepspeed_zero2", "hivemind", "fairscale_pipe"])
def test_an_engine_that_is_not_installed_is_a_row_with_the_cure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "found", lambda engine: None)
    with measuring.Starter() as starter:
        row = measuring.measured(BenchQuestion(engine=name, pair="image", ranks=2), starter)
    assert row.status == ABSENT and row.engine == name
    assert row.fix == f"foretell bench --install {name.replace('_', '-')}"


@pytest.mark.usefixtures("nothing_starts")
def test_a_comparison_leaves_its_report_and_refuses_one_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(environments, "found", lambda engine: None)
    words = ["bench", "--engine", "hivemind", "--pair", "image", "--ranks", "2", "--out", str(tmp_path / "study")]
    refused = CliRunner().invoke(cli, [*words, "--html", str(tmp_path / "nowhere" / "page.html")])
    assert isinstance(refused.exception, BadInput) and not (tmp_path / "study").exists()
    page = tmp_path / "study" / "page.html"  # in the folder that is made for it
    told = documented("bench", CliRunner().invoke(cli, [*words, "--html", str(page), "--json"]).output)
    assert told["files"] == [str(page)]
    told = documented("bench", CliRunner().invoke(cli, [*words, "--json"]).output)
    assert told["files"] == [str(tmp_path / "study" / "report.html")]
    assert "hivemind is not installed" in (tmp_path / "study" / "report.html").read_text()


@pytest.mark.usefixtures("nothing_starts")
def test_what_a_machine_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    home = environments.Home("python", "1")
    monkeypatch.setattr(environments, "found", lambda engine: home)
    monkeypatch.setattr(measuring.this_machine, "gpus", lambda: 0)
    with measuring.Starter() as starter:

        def reason(engine: str, **more: Any) -> str:
            row = measuring.measured(BenchQuestion(**({"engine": engine, "pair": "image", "ranks": 2} | more)), starter)
            assert row.status == UNFIT and row.fix
            return row.reason

        assert "needs CUDA" in reason("ddp", pair="vgg16")
        assert "needs 4 ranks" in reason("data_tensor")
        assert "does not run lamb" in reason("deepspeed_zero1", optimizer="lamb")
        monkeypatch.setattr(engine.shutil, "which", lambda name: None)
        assert "ninja" in reason("deepspeed_zero1")


def test_an_environment_knows_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path))
    asked = Engine(title="x", plan="dp{n}", package="no-such-package[all]")
    assert environments.found(asked) is None
    own = environments.folder(asked)
    place = own / "lib" / "python3.11" / "site-packages" / "no_such_package-1.2.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: no-such-package\nVersion: 1.2\n")
    (own / "bin").mkdir()
    (own / "bin" / "python").touch()
    assert environments.found(asked) == environments.Home(str(own / "bin" / "python"), "1.2")
    with pytest.raises(BadInput, match="needs no package"):
        environments.install(engine.engine("ddp"))


# what rows say together


def test_speed_ups_seeds_and_agreement() -> None:
    rows = [
        _row(ranks=1, batch=32, step_seconds=0.4, fingerprint="a"),
        _row(step_seconds=0.5, fingerprint="b"),
        _row(step_seconds=0.3, seed=1, fingerprint="c"),
        _row("gpipe", step_seconds=1.0, losses=(2.0, 1.001), fingerprint="d"),
        _row("stash", synchronous=False, losses=(9.0,), fingerprint="e"),
        _row("hivemind", status=ABSENT, step_seconds=0.0, fingerprint="f"),
    ]
    found = {(line.engine, line.ranks): line for line in lines(rows)}
    assert set(found) == {("ddp", 1), ("ddp", 2), ("gpipe", 2), ("stash", 2)}
    assert found["ddp", 2].seeds == 2 and found["ddp", 2].speed_up == pytest.approx(8.0 / 4.0)
    assert found["gpipe", 2].speed_up == pytest.approx(8.0 / 10.0)  # against the reference on one rank
    assert found["gpipe", 2].disagreement == pytest.approx(1e-3)
    assert found["stash", 2].disagreement is None


OTHERS: dict[str, Any] = {
    "model": "mlp", "task": "synthetic", "batch": 8, "batch_rule": "fixed", "optimizer": "sgd", "rate": 0.1,
    "scaled": True, "warmup": 3, "steps": 7, "look": 0, "device": "cuda", "threads": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_rows_of_other_conditions_are_not_mixed(name: str) -> None:
    usual = BenchQuestion(engine="ddp", pair="image", ranks=2)
    other = BenchQuestion(engine="ddp", pair="image", ranks=2, **{name: OTHERS[name]})
    assert usual.conditions == "" and name.replace("_", " ") in other.conditions
    assert other.conditions == BenchQuestion(engine="gpipe", pair="image", ranks=4, **{name: OTHERS[name]}).conditions
    rows = [one.row(step_seconds=1.0, epoch_samples=640) for one in (usual, other)]
    assert [line.seeds for line in lines(rows)] == [1, 1]
    assert [one.conditions for one in groups(rows)] == ["", other.conditions]
    page = bench_pages.page(BenchStudy(about=ABOUT, rows=tuple(rows)))
    assert page.count("image: ") == 2 and other.conditions in " ".join(page.split())


def test_what_the_pair_says_anyway_is_no_other_condition() -> None:
    asked = pair.pair("image")
    assert BenchQuestion(engine="ddp", pair="image", ranks=2, batch=asked.batch, rate=asked.rate).conditions == ""


def test_both_tables_have_one_rule_of_speed_up() -> None:
    alone = [_row("zero1", ranks=1, step_seconds=0.2, fingerprint="a"), _row(ranks=1, step_seconds=0.4)]
    seeds = [_row("gpipe", seed=at, step_seconds=step, fingerprint=str(at)) for at, step in enumerate((0.5, 0.3))]
    for rows, expected in ((alone, 1.0), (alone[:1], 0.5)):  # over ddp, or else over the fastest there
        (table,) = [line for line in lines([*rows, *seeds]) if line.engine == "gpipe"]
        (group,) = groups([*rows, *seeds])
        (pipe,) = group.within("gpipe")
        assert table.speed_up == pytest.approx(expected) == group.speed_up(pipe, 2)


@pytest.mark.reaches(several=10)
@given(st.lists(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=3), min_size=1, max_size=4))
def test_noise_is_what_seeds_of_one_engine_differ_by(engines: list[list[float]]) -> None:
    rows = [
        _row(f"engine{at}", seed=seed, step_seconds=step, fingerprint=f"{at} {seed}")
        for at, steps in enumerate(engines)
        for seed, step in enumerate(steps)
    ]
    found, several = noise(rows), [steps for steps in engines if len(steps) > 1]
    assert (found is None) == (not several)
    if found is not None:
        reached("several")
        assert found.lines == len(several) and 0 <= found.middle <= found.most
        assert found.most == pytest.approx(max(max(steps) / min(steps) for steps in several) - 1)
        assert f"{found.most:.0%} at most" in bench_pages.page(BenchStudy(about=ABOUT, rows=tuple(rows))).replace(
            "\n", " "
        )


def test_engines_are_counted_not_their_lines_and_doubts_are_told() -> None:
    said = PredictedRow(
        step_seconds=1, low_seconds=1, high_seconds=1, memory_bytes=1, breakdown={}, error=1, memory_error=0,
        calibrated=False,
    )  # fmt: skip
    rows = [
        _row(name, ranks=ranks, fingerprint=f"{name}{ranks}", busy=1.25, predicted=said)
        for name in ("ddp", "zero1")
        for ranks in (1, 2)
    ]
    page = " ".join(bench_pages.page(BenchStudy(about=ABOUT, rows=tuple(rows))).split())
    assert "losses of 1 other engine are" in page
    assert "before 4 of 4 rows others used up to 1.2 of its 2 cores" in page and "not calibrated" in page
    assert "Over 4 rows predicted steps are 100% off in the mean, +100% in the middle, and memory 0%." in page
    apart = bench_pages.page(BenchStudy(about=ABOUT, rows=(_row(unpredicted="ranks compute on cpu"),)))
    assert "nothing could be predicted: ranks compute on cpu." in " ".join(apart.split())
    calm = bench_pages.page(
        BenchStudy(about=ABOUT, rows=(_row(load=5.0, busy=0.1),))
    )  # the load is that of the row before
    assert "busy" not in calm and "calibrated" not in calm


def test_what_one_seed_learnt_is_told() -> None:
    curve = (LearningPoint(step=1, epoch=1.0, seconds=1.0, loss=1.0, metric=0.5),)
    rows = [_row(seed=seed, fingerprint=str(seed), curve=curve) for seed in (0, 1)]
    told = " ".join(bench_pages.page(BenchStudy(about=ABOUT, rows=(*rows, _row("gpipe", curve=curve)))).split())
    assert "of one seed for gpipe." in told


def test_cores_that_others_use_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 0 900 0 0 0 0 0 0\n")
    assert measuring.busy_cores(stat, 0.0) is None  # no time went by
    assert measuring.busy_cores(tmp_path / "nothing", 0.0) is None
    ticks = iter([measuring._Ticks(100, 1000), measuring._Ticks(130, 1020)])
    monkeypatch.setattr(measuring, "_ticks", lambda file: next(ticks))
    assert measuring.busy_cores(stat, 0.0) == (os.cpu_count() or 1)  # counters that run ahead of their sum
    ticks = iter([measuring._Ticks(100, 1000), measuring._Ticks(90, 1040)])
    assert measuring.busy_cores(stat, 0.0) == 0.0
    monkeypatch.undo()
    found = measuring.busy_cores()
    assert found is None or 0.0 <= found <= (os.cpu_count() or 1)


# several hosts


def test_the_first_failure_that_is_no_consequence_is_the_reason() -> None:
    lost, broken = Failure(rank_pool.CONSEQUENCE, "a rank is gone"), Failure("BadInput", "out of memory")
    reports = tuple(Report(rank=rank) for rank in range(3))
    assert rank_pool.together(RunOutcome((one,)) for one in reports).reports == reports
    for order in ([lost, broken], [broken, lost]):
        assert (
            rank_pool.together([RunOutcome(reports[:1]), *(RunOutcome(failure=one) for one in order)]).failure == broken
        )
    assert rank_pool.together([RunOutcome(failure=lost)]).failure == lost


def test_a_seat_knows_how_many_ranks_its_host_has() -> None:
    def here(rank: int, ranks: int) -> int:
        place = RankPlace(rank, world=8, local=rank % 4, here=4)
        return rank_pool._seat(place, rank_pool.RankCall(None, ranks)).here

    assert [here(rank, 6) for rank in range(6)] == [4, 4, 4, 4, 2, 2]
    assert measuring.BenchPlace(8, 4).hosts == 2 and measuring.BenchPlace().hosts == 1


class _Gone:
    """A store that nobody answers at, or that is gone itself."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def wait(self, keys: list[str], limit: timedelta) -> None:
        self.waited.append(limit.total_seconds())
        raise RuntimeError

    def check(self, keys: list[str]) -> bool:
        return False

    def set(self, key: str, value: bytes) -> None:
        raise RuntimeError("the store is gone")


def _table(store: _Gone) -> rank_pool.SeatStore:
    table = object.__new__(rank_pool.SeatStore)
    table._store, table.place = store, RankPlace(0, 2, 0, 2)
    return table


def test_seats_that_are_missing_are_waited_for_once() -> None:
    store = _Gone()
    table, until = _table(store), time.monotonic() + 600.0
    assert [table.answered(0, seat, until).failure is None for seat in (1, 2)] == [False, False]
    assert 600.0 >= store.waited[0] >= store.waited[1]  # by the same moment, not for as long again
    assert table.answered(0, 3, time.monotonic() - 1.0).failure is not None
    assert len(store.waited) == 2  # for the store no time at all would mean no limit


def test_what_a_seat_started_ends_where_the_store_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(measuring.Starter, "__exit__", lambda *_: ended.append("ended"))
    with pytest.raises(RuntimeError, match="gone"):
        rank_pool.Conductor(_table(_Gone())).__exit__(None, None, None)
    assert ended == ["ended"]


def test_rows_of_several_hosts_know_where_a_node_ends() -> None:
    (group,) = groups([_row(node=2, ranks=4), _row(node=2, ranks=2, fingerprint="b")])
    assert group.node == 2


# the command


@pytest.mark.parametrize(
    "words",
    [
        "--steps -3", "--steps 0", "--batch -8", "--batch 0", "--warmup -3", "--rate nan", "--rate 0", "--rate -1",
        "--rate inf", "--within -1", "--within 0", "--within nan", "--look -5", "--seeds 1000000", "--optimizer foo",
        "--batch-rule foo", "--model nosuchmodel", "--task nosuchtask", "--ranks 1..1000000000", "--engine=",
        "--engine=,", "--pair=", "--ranks=", "--out=", "--batch 99999999999999999999", "--quick --engine ddp",
        "--quick --pair image", "--quick --ranks 2", "--quick --seeds 1", "--quick --batch 8", "--quick --steps 3",
        "--quick --device cpu", "--quick --scale-rate", "--quick --nnodes 2", "--quick --rendezvous here:1",
        "--rendezvous here:1 --ranks 2",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: Any) -> None:
        raise AssertionError("a comparison began")

    monkeypatch.setattr(matrix, "compare", started)
    monkeypatch.chdir(tmp_path)
    problem = CliRunner().invoke(cli, ["bench", *words.split()]).exception
    assert isinstance(problem, ForetellError) and problem.fix, problem
    assert not list(tmp_path.iterdir())


def test_what_is_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "install", lambda engine: environments.Home("python", "0.19"))
    ran = CliRunner().invoke(cli, ["bench", "--install", "deepspeed-zero3", "--json"])
    assert documented("bench --install", ran.output) == {"package": "deepspeed", "python": "python", "version": "0.19"}


def test_the_command_lists_shows_and_refuses(tmp_path: Path) -> None:
    def said(*words: str) -> Any:
        return CliRunner().invoke(cli, ["bench", *words])

    names = {one["engine"] for one in documented("bench --list", said("--list", "--json").output)["engines"]}
    assert {"ddp", "deepspeed-zero3", "accelerate", "megatron-tensor"} <= names
    study.begin(tmp_path, ABOUT)
    study.keep(tmp_path, _row())
    study.keep(tmp_path, _row("hivemind", status=ABSENT, reason="not there", fix="get it", fingerprint="x"))
    assert "hivemind (image): not installed: not there" in said("--show", str(tmp_path)).output
    shown = documented("bench", said("--show", str(tmp_path), "--json").output)
    assert [row["engine"] for row in shown["rows"]] == ["ddp", "hivemind"] and len(shown["lines"]) == 1
    for words in (
        ["--engine", "nobodys"],
        ["--pair", "nothing"],
        ["--ranks", "x"],
        ["--seeds", "0"],
        ["--install", "ddp"],
    ):
        assert isinstance(said(*words).exception, BadInput), words
