"""Many trials of a sweep's candidates on one pool of GPUs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from foretell.errors import BadInput
from foretell.sweeping.cell import FAILED, OK, SweepRow
from foretell.sweeping.trials import TrialShape, ends, laid_out, least

KEYS: dict[str, Any] = {"ask": "predict", "trainer": "pytorch", "seq": 0, "precision": "", "status": OK}


def way(model: str, ranks: int, step: float, **others: Any) -> SweepRow:
    said: dict[str, Any] = KEYS | {"cluster": f"{ranks}xa100-40", "plan": f"dp{ranks}"} | others
    return SweepRow(model=model, batch=64, ranks=ranks, step_seconds=step, **said)


def shape(ranks: int, seconds: float) -> TrialShape:
    return TrialShape(way("a", ranks, seconds), seconds)


def test_one_gpu_each_ends_first_where_trials_fill_the_pool() -> None:
    """16 trials on 8 GPUs: two turns of 100 s, or on two GPUs each four turns of 55 s."""
    found = laid_out([way("a", 1, 1.0), way("a", 2, 0.55)], trials=16, steps=100, gpus=8)
    assert [(one.ranks, one.seconds) for one in found.groups] == [(1, 100.0)]
    assert found.seconds == found.least == 200.0 and found.idle == 0.0


def test_more_gpus_each_end_first_where_they_would_be_idle() -> None:
    """Nine trials on eight GPUs: two turns of 100 s with one each, but three of 55 s with two each."""
    found = laid_out([way("a", 1, 1.0), way("a", 2, 0.55)], trials=9, steps=100, gpus=8)
    assert found.groups[0].ranks == 2 and found.seconds == pytest.approx(165.0)
    assert found.idle == pytest.approx(1 - 9 * 2 * 55 / (8 * 165))
    assert found.least == pytest.approx(9 * 100 / 8)


def test_candidates_may_have_different_shares() -> None:
    """The small one runs beside the large one, which would be the last on one GPU."""
    rows = [
        way("small", 1, 1.0),
        way("small", 2, 0.6),
        way("large", 1, 4.0),
        way("large", 2, 2.1),
        way("large", 4, 1.2),
    ]
    found = laid_out(rows, trials=2, steps=100, gpus=8)
    assert {one.model: one.ranks for one in found.groups} == {"small": 1, "large": 2}
    assert found.seconds == pytest.approx(210.0)


def test_trials_are_laid_out_longest_first() -> None:
    """Two of 3 s and two of 2 s on two GPUs: 5 s, which no order beats."""
    assert ends([shape(1, 2.0), shape(1, 3.0)], trials=2, gpus=2) == 5.0


def _drawn(seed: int) -> tuple[list[list[TrialShape]], int, int]:
    draw = random.Random(seed)
    candidates: list[list[TrialShape]] = []
    for _ in range(draw.randint(1, 3)):
        alone = draw.uniform(1, 10)
        loss = draw.uniform(1.0, 1.3)
        candidates.append([shape(2**at, alone / 2**at * loss**at) for at in range(draw.randint(1, 4))])
    return candidates, draw.randint(1, 9), 8


@pytest.mark.parametrize("seed", range(40))
def test_no_layout_is_faster_than_the_bound_nor_slower_than_one_share_for_all(seed: int) -> None:
    candidates, trials, gpus = _drawn(seed)
    rows: list[SweepRow] = []
    for at, own in enumerate(candidates):
        rows += [msgspec.structs.replace(one.row, model=f"m{at}", step_seconds=one.seconds) for one in own]
    found = laid_out(rows, trials, 1, gpus)
    assert found.seconds >= found.least * (1 - 1e-9)
    assert 0 <= found.idle < 1
    assert found.least == pytest.approx(least(candidates, trials, gpus))
    cheapest = [min(own, key=lambda one: one.cost) for own in candidates]
    fastest = [min(own, key=lambda one: one.seconds) for own in candidates]
    for all_alike in (cheapest, fastest):
        assert found.seconds <= ends(all_alike, trials, gpus) * (1 + 1e-9) or all_alike is fastest
    work = sum(one.trials * one.ranks * one.seconds for one in found.groups)
    assert found.idle == pytest.approx(max(0.0, 1 - work / (gpus * found.seconds)), abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "gpus", "said"),
    [
        ([way("a", 4, 1.0)], 2, "runs on 2 GPUs"),
        ([way("a", 1, 1.0, status=FAILED)], 2, "runs on 2 GPUs"),
        ([way("a", 1, 1.0), way("a", 1, 1.0, cluster="1xh100")], 2, "a100-40 and h100"),
    ],
)
def test_what_cannot_be_laid_out_says_why(rows: Sequence[SweepRow], gpus: int, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        laid_out(rows, 3, 100, gpus)


def test_more_trials_than_are_laid_out_one_by_one_are_refused() -> None:
    with pytest.raises(BadInput, match="200,000 trials"):
        laid_out([way("a", 1, 1.0)], 200_000, 1, 8)


ASKED = ("sweep", "--model", "lenet", "--on", "1xa100-40,2xa100-40", "--batch", "64", "--jobs", "1", "--only", "dp")


def test_the_command_lays_out_what_it_swept(foretell: Callable[..., Any]) -> None:
    told = msgspec.json.decode(foretell(*ASKED, "--trials", "5", "--steps", "100", "--gpus", "4", "--json").out)
    assert told["layout"]["gpus"] == 4 and told["layout"]["groups"][0]["trials"] == 5
    page = foretell(*ASKED, "--trials", "5", "--steps", "100", "--gpus", "4").out
    assert "trials of 100 steps on 4 x a100-40" in page and "no layout takes less than" in page
    assert msgspec.json.decode(foretell(*ASKED, "--json").out)["layout"] is None


@pytest.mark.parametrize(
    "words", [("--trials", "5"), ("--gpus", "4"), ("--trials", "5", "--gpus", "4"), ("--steps", "5")]
)
def test_trials_need_a_pool_and_steps(foretell: Callable[..., Any], words: tuple[str, ...]) -> None:
    ran = foretell(*ASKED, *words)
    assert ran.code == 2 and "try" in ran.err
