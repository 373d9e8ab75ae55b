"""validate --regret: the plan we would have picked, the best measured, and the loss."""

from __future__ import annotations

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from answers import documented
from foretell.cli.regret_pages import as_json
from foretell.cli.regret_pages import page as regret_page
from foretell.validation.evaluate import ComparedRun, subset
from foretell.validation.regret import healthy, regrets
from foretell.validation.study import MeasuredRun, row
from law_examples import reached

ALWAYS = ("validate",)

PLANS = ("dp8", "dp4 tp2", "dp2 tp4", "tp8", "dp8:zero1", "dp8:zero3")


def measured(plan: str, batch: int, seconds: float, tag: str = "healthy") -> MeasuredRun:
    ran: dict[str, Any] = {"outcome": "ok" if seconds else "failed", "subsets": [tag] if seconds else []}
    return row(plan, "gpt2", plan, "8xh100", batch=batch, trainer="pytorch", step_seconds=seconds, **ran)


def compared(one: MeasuredRun, predicted: float, fits: bool = True) -> ComparedRun:
    memory = SimpleNamespace(**dict.fromkeys(("device", "reserved", "allocated"), 1.0 if fits else 2.0))
    room = {"usable": 1.0, "most": 1.0, "chance": 0.5 if fits else 0.0}
    found = SimpleNamespace(step_seconds=predicted, fits=fits, memory=memory, interval=(0.0, 0.0), **room)
    return ComparedRun(one, cast("Any", found), "")


def test_the_pick_the_best_and_the_loss() -> None:
    runs = [
        compared(measured("dp8", 8, 2.0), 1.0),
        compared(measured("tp8", 8, 1.0), 1.5),
        compared(measured("dp4 tp2", 8, 3.0), 2.0),
        compared(measured("dp8", 16, 1.0), 1.0),  # nothing to choose
    ]
    (pick,) = regrets(runs).picks
    assert pick.pick is not None and pick.pick == pick.by_time
    assert (pick.pick.plan, pick.best.plan, pick.loss, pick.plans, pick.ranks) == ("dp8", "tp8", 1.0, 3, 8)
    assert pick.failed == 0


def test_a_plan_that_ran_and_was_foretold_not_to_fit_is_a_loss() -> None:
    runs = [
        compared(measured("dp8", 8, 1.0), 1.0, fits=False),
        compared(measured("tp8", 8, 3.0), 2.0),
        compared(measured("dp4 tp2", 8, 2.0), 4.0),
    ]
    found = regrets(runs)
    (pick,) = found.picks
    assert pick.pick is not None and (pick.pick.plan, pick.loss) == ("tp8", 2.0)
    assert (pick.by_time.plan, pick.loss_by_time) == ("dp8", 0.0)
    assert found.regret is not None and found.by_time is not None
    assert (found.regret.mean, found.by_time.mean) == (2.0, 0.0)


def test_a_plan_that_runs_with_retries_can_be_picked() -> None:
    """The sweeps' fastest plans are often those that just fit: what is likelier to run than not is tried."""
    tight = compared(measured("dp8", 8, 1.0), 1.0, fits=False)
    needs = SimpleNamespace(device=1.2, reserved=1.2, allocated=0.9)
    found = cast("Any", SimpleNamespace(**{**vars(tight.prediction), "memory": needs, "chance": 0.8}))
    (pick,) = regrets([tight._replace(prediction=found), compared(measured("tp8", 8, 3.0), 2.0)]).picks
    assert pick.pick is not None and (pick.pick.plan, pick.loss) == ("dp8", 0.0)


def test_adapters_are_no_way_to_train_all_weights() -> None:
    runs = [compared(measured("dp8 +bf16", 8, 2.0), 1.0), compared(measured("dp8 +bf16 +lora16", 8, 1.0), 3.0)]
    assert regrets(runs).picks == ()
    (pick,) = regrets([*runs, compared(measured("dp8 +bf16 +lora16 +nf4", 8, 2.0), 4.0)]).picks
    assert (pick.plans, pick.best.plan) == (2, "dp8 +bf16 +lora16")


def test_where_nothing_was_foretold_to_fit_there_is_no_pick() -> None:
    runs = [compared(measured(plan, 8, time), time, fits=False) for plan, time in (("dp8", 1.0), ("tp8", 2.0))]
    found = regrets(runs)
    assert found.picks[0].pick is None and found.picks[0].loss is None and found.regret is None
    assert found.by_time is not None and found.by_time.mean == 0.0


def test_plans_that_failed_are_counted_if_they_promised_more() -> None:
    ran = [compared(measured("dp8", 8, 2.0), 2.0), compared(measured("tp8", 8, 1.0), 3.0)]
    failed = [
        compared(measured("dp4 tp2", 8, 0.0), 1.0),
        compared(measured("dp2 tp4", 8, 0.0), 1.0, fits=False),  # foretold to fail
        compared(measured("dp8:zero1", 8, 0.0), 2.5),  # slower than the pick
        ComparedRun(measured("dp8:zero3", 8, 0.0), None, "a rule"),
    ]
    (pick,) = regrets([*failed, *ran]).picks
    assert pick.failed == 1 and pick.plans == 2


def test_faults_of_the_cluster_are_left_out_of_healthy() -> None:
    runs = [
        compared(measured("dp8", 8, 9.0, "cluster fault"), 1.0),
        compared(measured("tp8", 8, 1.0), 1.5),
        compared(measured("dp4 tp2", 8, 3.0), 2.0),
        compared(measured("dp2 tp4", 8, 0.0), 1.0),
    ]
    assert regrets(runs).picks[0].loss == 8.0
    (pick,) = regrets(healthy("study", runs)).picks
    assert (pick.loss, pick.failed) == (0.0, 1)


TIMES = some.floats(0.1, 10.0)
RUNS = some.tuples(some.sampled_from(PLANS), some.sampled_from([8, 16]), TIMES, TIMES, some.booleans())


@pytest.mark.reaches(regret=5, all_fit=2)
@given(some.lists(RUNS, max_size=12))
def test_by_time_it_is_the_regret_of_the_scoreboard(runs: list[tuple[str, int, float, float, bool]]) -> None:
    found = [compared(measured(plan, batch, seconds), told, fits) for plan, batch, seconds, told, fits in runs]
    result = regrets(found)
    board = subset(found).regret
    assert (result.by_time is None) == (board is None)
    if board is not None and result.by_time is not None:
        reached("regret")
        assert result.by_time.max == board.max and result.by_time.mean == pytest.approx(board.mean)
    losses = [one.loss for one in result.picks if one.loss is not None]
    assert result.median == (pytest.approx(statistics.median(losses)) if losses else None)
    assert losses == sorted(losses, reverse=True)
    if runs and all(fits for *_, fits in runs):
        reached("all_fit")
        assert result.regret == result.by_time


def test_all_studies_together_leave_faults_out() -> None:
    faulty = [
        compared(measured("dp8", 8, 9.0, "cluster fault"), 1.0),
        compared(measured("tp8", 8, 1.0), 1.5),
        compared(measured("dp4 tp2", 8, 3.0), 2.0),
    ]
    other = [compared(measured("dp8", 16, 1.2, ""), 1.0), compared(measured("tp8", 16, 1.0, ""), 1.5)]
    told = msgspec.json.decode(as_json([("one", faulty), ("two", other)]))["studies"]
    assert [part["study"] for part in told] == ["one", "one, healthy", "two", "all of these, healthy"]
    assert [part["regret"]["mean"] for part in told] == pytest.approx([8.0, 0.0, 0.2, 0.1])
    assert told[-1]["median"] == pytest.approx(0.1)
    assert [part["study"] for part in msgspec.json.decode(as_json([("two", other)]))["studies"]] == ["two"]
    page = regret_page([("one", faulty), ("two", other)])
    assert "all of these, healthy" in page and max(map(len, page.splitlines())) <= 80


def test_the_page_and_json_of_a_file(foretell: Any, tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "studies" / "published" / "vtrain_multi.csv"
    file = tmp_path / "some.csv"
    file.write_text("\n".join(shipped.read_text().splitlines()[:7]))
    ran = foretell(str(file), "--regret")
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    answer = documented("validate --regret", foretell(str(file), "--regret", "--json").out)["studies"]
    (part,) = answer
    assert part["study"] == "some" and part["regret"]["max"] == max(one["loss"] for one in part["picks"])
    for one in part["picks"]:
        assert one["loss"] == pytest.approx(one["pick"]["measured_seconds"] / one["best"]["measured_seconds"] - 1)
        assert one["pick"]["predicted_seconds"] <= one["best"]["predicted_seconds"]


def test_runs_of_one_plan_are_no_choice() -> None:
    runs = [compared(measured("dp8", 8, time), 1.0) for time in (1.0, 2.0, 3.0)]
    assert regrets(runs).picks == () and subset(runs).regret is None
    (pick,) = regrets([*runs, compared(measured("tp8", 8, 1.5), 3.0)]).picks
    assert (pick.plans, pick.best.plan) == (2, "tp8")
    assert pick.pick is not None and pick.pick.measured_seconds == 2.0 and pick.loss == pytest.approx(2 / 1.5 - 1)


def test_other_software_is_another_choice() -> None:
    other = msgspec.structs.replace
    runs = [compared(measured("dp8", 8, 1.0), 1.0), compared(measured("tp8", 8, 2.0), 3.0)]
    job = other(runs[1].row.job, trainer="torchtitan")
    assert len(regrets(runs).picks) == 1
    assert regrets([runs[0], runs[1]._replace(row=other(runs[1].row, job=job))]).picks == ()
