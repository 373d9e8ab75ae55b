"""Whether real runs and virtual time are told apart when they should be, and not when they should not.

What stands for a real run here is made by rule, so that nothing depends on the machine.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from answers import documented
from foretell.cli.command import cli
from foretell.cli.simulate_pages import agreement_page
from foretell.errors import BadInput
from foretell.hardware.disturbance import read as machine
from foretell.learning.tempo import FREE, Tempo, tempo
from foretell.runtime.assignment import Assignment, Report
from foretell.virtual.agreement import agreement
from foretell.virtual.foretold import StalenessSeen, apart, at_paces, seen, stretches, together, told

GRADIENTS = 40
UNEVEN = Tempo(0.04, jitter=0.3, often=0.1, times=4.0)
SEED = 1000
ASKED = Assignment(
    model="lenet", plan="ps3:async", batch=12, steps=GRADIENTS - 3, dropped=3, optimizer="sgd", seed=SEED
)


def drawn(given: Tempo, workers: int, seed: int, slow: float = 1.0) -> list[list[float]]:
    """Times of all gradients; the last worker may be a slow one."""
    return [
        [one * (slow if worker == workers - 1 else 1.0) for one in islice(given.drawn(worker, seed), GRADIENTS)]
        for worker in range(workers)
    ]


def reports(paces: list[list[float]], text: str = "downpour") -> list[Report]:
    """What ranks would have written down."""
    stale = {str(age): times for age, times in at_paces(text, paces).items()}
    return [
        Report(rank=rank, paces=own, steps=own[3:], staleness=stale if rank == 0 else {}, served=[0.0])
        for rank, own in enumerate(paces)
    ]


@pytest.mark.parametrize("plan", ["ps2:async", "ps3:async", "ps3:ssp,s1"])
def test_a_run_of_the_same_is_not_told_apart(plan: str) -> None:
    asked = msgspec.structs.replace(ASKED, plan=plan)
    text = "ssp:s=1,cache=0@single" if "ssp" in plan else "downpour@single"
    paces = drawn(UNEVEN, int(plan[2]), SEED, slow=2.0)
    taken = told(seen(asked, reports(paces, text)))
    given = msgspec.structs.replace(asked, tempo=UNEVEN, disturbance=machine([f"{int(plan[2]) - 1}:2x"]))
    by_tempo = told(seen(given, reports(paces, text)))
    assert (taken.by, by_tempo.by) == ("taken", "asked")
    assert taken.chance > 0.02 and by_tempo.chance > 0.02
    assert by_tempo.distance < 0.2


def test_a_run_at_other_paces_is_told_apart() -> None:
    """One worker is four times as slow as all are in virtual time."""
    measured = at_paces("downpour", drawn(UNEVEN, 3, SEED, slow=4.0))
    found = told(StalenessSeen("asked", measured, [at_paces("downpour", drawn(UNEVEN, 3, seed)) for seed in range(30)]))
    assert found.chance == pytest.approx(1 / 31)
    assert found.distance > found.noise


def test_what_letters_and_the_machine_add_is_added() -> None:
    """The last worker's letters take as long as its gradients: it comes half as often."""
    asked = msgspec.structs.replace(ASKED, tempo=UNEVEN)
    slow, even = (seen(asked, reports(drawn(UNEVEN, 3, SEED, slow=times))) for times in (4.0, 1.0))
    assert told(slow).chance > 0.02
    assert apart(sum(slow.virtual, Counter()), sum(even.virtual, Counter())) > 0.1


def test_long_gradients_are_drawn_as_often_as_they_were() -> None:
    """Whoever takes up the gradient that is under way at some moment finds a long one more often than not."""
    heavy = drawn(Tempo(0.01, often=0.1, times=20.0), 2, 7)
    mean = np.mean(heavy)
    drawn_again = (stretches(heavy, 3, np.random.default_rng(seed)) for seed in range(200))
    means = [
        np.mean([own[at] for own, found in zip(heavy, all_of, strict=True) for at in found]) for all_of in drawn_again
    ]
    assert np.mean(means) == pytest.approx(mean, rel=0.15)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(0, 3))
def test_gradients_are_drawn_again_from_those_that_were_taken(seed: int, workers: int, few: int) -> None:
    paces = drawn(UNEVEN, workers, seed)
    for places in stretches(paces, few, np.random.default_rng(seed)):
        assert len(places) == GRADIENTS and places[:few] == list(range(few))
        assert all(few <= at < GRADIENTS for at in places[few:])


@pytest.mark.parametrize("own", [[0.1, 0.2], [0.0, 0.0, 0.0]])
def test_gradients_too_few_to_draw_from_stay_as_they_were(own: list[float]) -> None:
    assert stretches([own, own], 1, np.random.default_rng(0)) == [list(range(len(own)))] * 2


@given(st.lists(st.dictionaries(st.integers(0, 5), st.integers(1, 50), min_size=1), min_size=3, max_size=12))
def test_chances_are_those_of_a_rank_among_all(runs: list[dict[int, int]]) -> None:
    first, *others = map(Counter, runs)
    found = told(StalenessSeen("taken", first, others))
    assert 1 / len(runs) <= found.chance <= 1.0
    assert 0.0 <= found.distance <= 1.0
    assert told(StalenessSeen("taken", first, [first] * len(others))).distance == pytest.approx(0.0, abs=1e-12)
    both = together([StalenessSeen("taken", first, others)] * 2)
    assert told(both).distance == pytest.approx(found.distance)
    assert apart(first, first) == 0.0


def test_a_tempo_is_the_same_for_the_same_rank_and_seed() -> None:
    times = [list(islice(UNEVEN.drawn(rank, seed), 2000)) for rank, seed in ((0, 0), (0, 0), (1, 0), (0, 1))]
    assert times[0] == times[1] and times[0] != times[2] and times[0] != times[3]
    assert np.mean(times) == pytest.approx(0.04 * (0.9 + 0.1 * 4), rel=0.05)
    assert set(islice(FREE.drawn(0, 0), 5)) == {0.0}


def test_several_runs_are_compared_with_each_other_too() -> None:
    asked = msgspec.structs.replace(ASKED, tempo=UNEVEN)
    runs = [(msgspec.structs.replace(asked, seed=seed), reports(drawn(UNEVEN, 3, seed))) for seed in (1000, 1001)]
    found = agreement(runs)
    documented("simulate --record --record", msgspec.json.encode(found))
    assert len(found.between) == 1 and len(found.runs) == 2
    assert found.together.noise < max(one.noise for one in found.runs)
    assert found.together.chance > 0.02
    page = agreement_page(found)
    assert "no difference is seen" in page and "at the pace that was asked for" in page


def test_runs_of_something_else_are_not_compared() -> None:
    one, other = ASKED, msgspec.structs.replace(ASKED, plan="ps3:ssp,s1")
    with pytest.raises(BadInput, match="another plan"):
        agreement([(one, []), (other, [])])
    with pytest.raises(BadInput, match="another dropped"):
        agreement([(one, []), (msgspec.structs.replace(ASKED, dropped=5), [])])
    run = (one, reports(drawn(UNEVEN, 3, SEED)))
    with pytest.raises(BadInput, match="the same run twice"):
        agreement([run, run])
    with pytest.raises(BadInput, match="nobody wrote down"):
        agreement([(one, [Report(rank=0)]), (one, [Report(rank=0)])])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "dp2", "--pace", "10ms"], "all ranks step together"),
        (["--plan", "ps2:async", "--jitter", "0.2"], "around one that nobody said"),
        (["--plan", "ps2:async", "--pace", "10ms", "--stragglers", "2x5"], "make things slower"),
        (["--plan", "ps2:async", "--pace", "soon"], "is not a time"),
    ],
)
def test_paces_that_no_run_can_have(words: list[str], said: str) -> None:
    problem: Any = CliRunner().invoke(cli, ["run", "lenet", *words]).exception
    assert isinstance(problem, BadInput) and said in problem.what and problem.fix


def test_a_tempo_reads_as_it_is_written() -> None:
    assert tempo(0.04, 0.3, "0.1x4") == UNEVEN
    assert tempo(0.0, 0.0, "") == FREE
