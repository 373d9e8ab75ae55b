"""validate --regret: the plan we would have picked, the best measured, and the loss."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foretell.validation.evaluate import Compared, subset
from foretell.validation.regret import healthy, regrets
from foretell.validation.study import Row, row

ALWAYS = ("validate",)

PLANS = ("dp8", "dp4 tp2", "dp2 tp4", "tp8", "dp8:zero1", "dp8:zero3")


def measured(plan: str, batch: int, seconds: float, tag: str = "healthy") -> Row:
    ran: dict[str, Any] = {"outcome": "ok" if seconds else "failed", "subsets": [tag] if seconds else []}
    return row(plan, "gpt2", plan, "8xh100", batch=batch, trainer="pytorch", step_seconds=seconds, **ran)


def compared(one: Row, predicted: float, fits: bool = True) -> Compared:
    found = SimpleNamespace(step_seconds=predicted, fits=fits, memory=None, interval=(0.0, 0.0))
    return Compared(one, cast("Any", found), "")


def test_the_pick_the_best_and_the_loss() -> None:
    runs = [
        compared(measured("dp8", 8, 2.0), 1.0),
        compared(measured("tp8", 8, 1.0), 1.5),
        compared(measured("dp4 tp2", 8, 3.0), 2.0),
        compared(measured("dp8", 16, 1.0), 1.0),  # nothing to choose
    ]
    (pick,) = regrets(runs).picks
    assert (pick.pick.plan, pick.best.plan, pick.loss, pick.plans, pick.ranks) == ("dp8", "tp8", 1.0, 3, 8)
    assert not pick.too_large and pick.failed == 0


def test_plans_that_failed_are_counted_if_they_promised_more() -> None:
    ran = [compared(measured("dp8", 8, 2.0), 2.0, fits=False), compared(measured("tp8", 8, 1.0), 3.0)]
    failed = [
        compared(measured("dp4 tp2", 8, 0.0), 1.0),
        compared(measured("dp2 tp4", 8, 0.0), 1.0, fits=False),  # foretold to fail
        compared(measured("dp8:zero1", 8, 0.0), 2.5),  # slower than the pick
        Compared(measured("dp8:zero3", 8, 0.0), None, "a rule"),
    ]
    (pick,) = regrets([*failed, *ran]).picks
    assert pick.failed == 1 and pick.too_large and pick.plans == 2


def test_faults_of_the_cluster_are_left_out_of_healthy() -> None:
    runs = [
        compared(measured("dp8", 8, 9.0, "cluster fault"), 1.0),
        compared(measured("tp8", 8, 1.0), 1.5),
        compared(measured("dp4 tp2", 8, 3.0), 2.0),
        compared(measured("dp2 tp4", 8, 0.0), 1.0),
    ]
    assert regrets(runs).picks[0].loss == 8.0
    (pick,) = regrets(healthy(runs)).picks
    assert (pick.loss, pick.failed) == (0.0, 1)


TIMES = some.floats(0.1, 10.0)


@given(some.lists(some.tuples(some.sampled_from(PLANS), some.sampled_from([8, 16]), TIMES, TIMES), max_size=12))
def test_it_is_the_regret_of_the_scoreboard(runs: list[tuple[str, int, float, float]]) -> None:
    found = [compared(measured(plan, batch, seconds), predicted) for plan, batch, seconds, predicted in runs]
    result = regrets(found)
    assert result.regret == subset(found).regret
    losses = [one.loss for one in result.picks]
    assert losses == sorted(losses, reverse=True)
    if result.regret is not None:
        assert result.regret.max == losses[0] and result.regret.mean == pytest.approx(sum(losses) / len(losses))


def test_the_page_and_json_of_a_file(foretell: Any, tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "studies" / "published" / "vtrain_multi.csv"
    file = tmp_path / "some.csv"
    file.write_text("\n".join(shipped.read_text().splitlines()[:7]))
    ran = foretell(str(file), "--regret")
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    answer = json.loads(foretell(str(file), "--regret", "--json").out)["studies"]
    (part,) = answer
    assert part["study"] == "some" and part["regret"]["max"] == max(one["loss"] for one in part["picks"])
    for one in part["picks"]:
        assert one["loss"] == pytest.approx(one["pick"]["measured_seconds"] / one["best"]["measured_seconds"] - 1)
        assert one["pick"]["predicted_seconds"] <= one["best"]["predicted_seconds"]
