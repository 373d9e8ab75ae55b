"""What one measured run says of another: laws of the conditional mean, and effects that are found again."""

from __future__ import annotations

import math
import random

import pytest

from foretell.oracle.bands import bands
from foretell.oracle.carried import (
    COMPUTING,
    HOST,
    MESSAGES,
    EffectSpread,
    RunTraits,
    SeenRun,
    alike_deviation,
    kind_of,
    seconds_of,
    weight,
)
from foretell.oracle.posterior import Posterior
from foretell.oracle.predict import LAYERS
from foretell.validation.carried import drawn_pairs, learnt_spread
from foretell.validation.unseen import UnseenRun

RUN = RunTraits("megatron", "h100", "llama3-8b", 64, ("a",), ("dp", "tp"))
SECONDS = (3.0, 1.0, 0.5)
OTHERS = {
    "batch": RUN._replace(question=("b",)),
    "ranks": RUN._replace(question=("b",), ranks=512),
    "model": RUN._replace(question=("b",), model="gpt3-175b"),
    "device": RUN._replace(question=("b",), device="a100-80"),
    "trainer": RUN._replace(question=("b",), trainer="fsdp"),
    "axes": RUN._replace(question=("b",), axes=("pp",)),
    "all": RunTraits("fsdp", "a100-80", "gpt3-175b", 4096, ("b",), ("pp",)),
}


@pytest.fixture(name="spread")
def _spread() -> EffectSpread:
    return bands().carried


@pytest.mark.parametrize("log", [-2.0, -0.1, 0.0, 0.3, 2.3])
def test_the_very_run_is_what_was_measured(log: float, spread: EffectSpread) -> None:
    known = Posterior([SeenRun(RUN, SECONDS, log)], spread)
    assert known.log(RUN, SECONDS) == pytest.approx(log, abs=1e-9)


@pytest.mark.parametrize("log", [-0.5, 0.3])
def test_a_run_says_less_of_one_that_differs_in_more(log: float, spread: EffectSpread) -> None:
    known = Posterior([SeenRun(RUN, SECONDS, log)], spread)
    moved = {name: known.log(other, SECONDS) / log for name, other in OTHERS.items()}
    assert all(0 < share < 1 for share in moved.values()), moved
    assert max(moved, key=moved.__getitem__) == "batch"
    assert min(moved, key=moved.__getitem__) == "all"


def test_a_run_leaves_more_open_of_one_that_differs_in_more(spread: EffectSpread) -> None:
    known = Posterior([SeenRun(RUN, SECONDS, 0.3)], spread)
    assert known.deviation(RUN, SECONDS) == pytest.approx(0.0, abs=1e-6)
    left = {name: known.deviation(other, SECONDS) for name, other in OTHERS.items()}
    assert min(left, key=left.__getitem__) == "batch" and max(left, key=left.__getitem__) == "all", left
    unknown = Posterior([SeenRun(OTHERS["all"], SECONDS, 0.3)], spread).deviation(RUN, SECONDS)
    both = Posterior([SeenRun(RUN, SECONDS, 0.3), SeenRun(OTHERS["all"], SECONDS, 0.3)], spread)
    assert both.deviation(OTHERS["batch"], SECONDS) <= left["batch"] < unknown
    only = Posterior([SeenRun(RUN, (1.0, 0.0, 0.0), 0.3)], spread).deviation(OTHERS["batch"], (1.0, 0.0, 0.0))
    assert alike_deviation(spread)[0] == pytest.approx(only)


def test_more_runs_say_more(spread: EffectSpread) -> None:
    runs = [SeenRun(RUN._replace(question=(number,)), SECONDS, 0.3) for number in range(8)]
    asked = RUN._replace(question=("asked",))
    moved = [Posterior(runs[:count], spread).log(asked, SECONDS) for count in (1, 2, 4, 8)]
    assert moved == sorted(moved) and moved[0] < 0.27 < moved[-1] < 0.3


def test_one_run_told_twice_says_no_more(spread: EffectSpread) -> None:
    seen = SeenRun(RUN, SECONDS, 0.3)
    once, twice = (Posterior(runs, spread).log(OTHERS["model"], SECONDS) for runs in ([seen], [seen, seen]))
    assert once == pytest.approx(twice, abs=1e-9)


def test_a_part_that_is_nearly_all_of_a_step_takes_nearly_all_of_its_error(spread: EffectSpread) -> None:
    for kind in (COMPUTING, MESSAGES, HOST):
        seconds = tuple(1.0 if kind == at else 1e-6 for at in range(3))
        factors = Posterior([SeenRun(RUN, (seconds[0], seconds[1], seconds[2]), 0.3)], spread).factors(RUN)
        assert factors[kind] == pytest.approx(math.exp(0.3), rel=1e-4)
        assert all(1 <= other <= factors[kind] for other in factors)


@pytest.mark.parametrize("kind", [COMPUTING, MESSAGES, HOST])
def test_weights_lie_between_none_and_all(kind: int, spread: EffectSpread) -> None:
    assert weight(RUN, RUN, kind, spread) == 1
    assert all(0 <= weight(other, RUN, kind, spread) < 1 for other in OTHERS.values())


def test_every_part_of_a_step_is_counted_once() -> None:
    parts: dict[str, float] = dict.fromkeys(
        (*LAYERS, "host", "bubble", "other", "input", "optimizer", "exposed.dp"), 1.0
    )
    assert sum(seconds_of(parts)) == len(parts)
    assert kind_of("exposed.tp") == MESSAGES and kind_of("bubble") == COMPUTING and kind_of("host") == HOST


def test_effects_are_found_again() -> None:
    """Runs of 120 sources whose errors have a known effect of the device, of the model and of the run."""
    chance = random.Random(7)
    runs: list[UnseenRun] = []
    for source in range(120):
        devices, models = ([chance.gauss(0, sd) for _ in range(3)] for sd in (0.15, 0.1))
        for number in range(30):
            device, model = chance.randrange(3), chance.randrange(3)
            log = devices[device] + models[model] + chance.gauss(0, 0.05)
            traits = RunTraits("t", f"d{device}", f"m{model}", 8, (source, number))
            runs.append(UnseenRun("s", f"s{source}", "t", log, log, log, True, traits, (1.0, 0.0, 0.0)))
    found = learnt_spread(drawn_pairs(runs))
    assert math.sqrt(found.device) == pytest.approx(0.15, abs=0.03)
    assert math.sqrt(found.model) == pytest.approx(0.1, abs=0.03)
    assert math.sqrt(found.run) == pytest.approx(0.05, abs=0.02)
    assert found.scale < 0.003 and found.trainer == 0.0


def test_the_effect_of_the_kind_of_plan_is_found_again() -> None:
    chance = random.Random(9)
    runs: list[UnseenRun] = []
    for source in range(120):
        kinds = {axes: chance.gauss(0, 0.15) for axes in ("dp", "tp", "pp")}
        for number in range(30):
            axes = chance.choice(sorted(kinds))
            log = kinds[axes] + chance.gauss(0, 0.03)
            traits = RunTraits("t", "d", f"m{number}", 8, (source, number), (axes,))
            runs.append(UnseenRun("s", f"s{source}", "t", log, log, log, True, traits, (1.0, 0.0, 0.0)))
    found = learnt_spread(drawn_pairs(runs))
    assert math.sqrt(found.axes) == pytest.approx(0.15, abs=0.03)
    one, like, apart = (RunTraits("t", "d", "m", 8, (at,), (axes,)) for at, axes in enumerate(("dp", "dp", "tp")))
    known = Posterior([SeenRun(one, (1.0, 0.0, 0.0), 0.2)], found)
    assert known.log(like, (1.0, 0.0, 0.0)) > 0.15 > 0.1 > known.log(apart, (1.0, 0.0, 0.0))
    assert known.deviation(like, (1.0, 0.0, 0.0)) < known.deviation(apart, (1.0, 0.0, 0.0))


def test_a_trainer_beside_another_shares_what_they_share() -> None:
    chance = random.Random(8)
    runs: list[UnseenRun] = []
    for source in range(80):
        stack = chance.gauss(0, 0.2)
        for number in range(20):
            name = f"t{number % 2}"
            traits = RunTraits(name, "d", "m", 8, (source, number))
            log = stack + chance.gauss(0, 0.02)
            runs.append(UnseenRun("s", f"s{source}", name, log, log, log, True, traits, (1.0, 0.0, 0.0)))
    assert learnt_spread(drawn_pairs(runs)).trainer == pytest.approx(1.0, abs=0.1)
