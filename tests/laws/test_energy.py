"""Joules of a step: what kernels draw beside a device that waits, never more than the device may."""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretell.cli.rates import energy_lines
from foretell.cost.energy import IDLE, MATRIX, MEMORY, MOST, RUNNING, above_idle, drawn
from foretell.cost.price import priced
from foretell.hardware.members import device
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.matmul import Matmul
from foretell.oracle.energy import StepEnergy, step_energy
from foretell.oracle.predicted import predicted
from foretell.oracle.request import read
from foretell.plan.policies.precision import FORMATS
from foretell.program.action import Compute

H200, BF16 = device("h200"), FORMATS["bf16:pure"]
MODEL = "llama:layers=8,hidden=1024,heads=8,kv_heads=8,ffn=2816,vocab=4096,seq=512"


def energy(plan: str, on: str = "8xh200", batch: int = 16, model: str = MODEL) -> tuple[Any, StepEnergy]:
    asked, found = predicted(read(model=model, on=on, plan=plan, batch=batch))
    told = step_energy(priced(asked.setting, asked.place), found)
    assert told is not None
    return found, told


@pytest.mark.parametrize(
    "plan",
    ["dp8 +bf16", "dp8:zero3 +bf16 +recompute:block", "tp8:sp +bf16", "pp4:1f1b dp2 +m4 +bf16", "dp2 cp4:ring +fp32"],
)
def test_watts_lie_between_waiting_and_the_limit(plan: str) -> None:
    found, told = energy(plan)
    assert IDLE * 700 < told.watts <= MOST * 700
    assert told.joules == pytest.approx(told.watts * found.step_seconds * 8)
    assert told.tokens_per_joule * told.joules == pytest.approx(16 * 512)
    assert told.samples_per_joule * told.joules == pytest.approx(16)


def test_work_that_is_divided_draws_what_it_drew_whole() -> None:
    """Eight replicas with an eighth of the batch each compute what one does: they draw as much besides what is drawn
    by waiting, but for the kernels of weights, which each replica has."""
    big = MODEL.replace("layers=8", "layers=2")
    one, alone = energy("dp1 +bf16", "1xh200", 64, big)
    eight, shared = energy("dp8 +bf16", "8xh200", 64, big)
    beside = [
        told.joules - IDLE * 700 * found.step_seconds * found.ranks for found, told in ((one, alone), (eight, shared))
    ]
    if max(alone.watts, shared.watts) < MOST * 700:
        assert beside[0] < beside[1] < 2 * beside[0]
    assert shared.joules > alone.joules


def test_pipelines_count_every_stage() -> None:
    """Two stages of half the layers draw besides what one rank with all of them does; the bubble draws little."""
    whole, alone = energy("dp1 +m4 +bf16", "1xh200", 8)
    halves, staged = energy("pp2:1f1b +m4 +bf16", "2xh200", 8)
    beside = [
        told.joules - IDLE * 700 * found.step_seconds * found.ranks
        for found, told in ((whole, alone), (halves, staged))
    ]
    assert beside[1] == pytest.approx(beside[0], rel=0.1)


def test_kernels_by_hand() -> None:
    n = {"batch": 1, "row": 8192, "in": 8192, "out": 8192}
    cost = Matmul().part("forward", n, dict.fromkeys(("x", "w", "y"), 2))
    product = above_idle(Compute("layers.0", "matmul", "forward", n, cost), 1e-3, H200, BF16)
    moved = 3 * 8192**2 * 2 / H200.memory_bandwidth
    assert product == pytest.approx(700 * (2 * 8192**3 / 989.4e12 * MATRIX + moved * MEMORY))
    copy = Elementwise("copy").part("forward", {"item": 2**28}, {"x": 2, "y": 2})
    action = Compute("layers.0", "elementwise", "forward", {"item": 2**28}, copy)
    assert above_idle(action, 0.0, H200, BF16) == pytest.approx(700 * MEMORY * 2**30 / 4.8e12)
    assert above_idle(action, 1.0, H200, BF16) == pytest.approx(700 * RUNNING)  # a kernel that waits
    assert drawn(H200, 1.0, 2, [1e9]).watts == MOST * 700
    assert drawn(H200, 1.0, 2, []).joules == 2 * IDLE * 700


def test_other_devices_by_their_limits_and_said_so() -> None:
    half = msgspec.structs.replace(H200, power_watts=350.0)
    assert drawn(half, 1.0, 1, []).watts == pytest.approx(drawn(H200, 1.0, 1, []).watts / 2)
    assert energy("dp8 +bf16")[1].origin == "measured"
    told = energy("dp8 +bf16", "8xa100-80")[1]
    assert told.origin == "carried over" and told.limit == 400
    lines = dict(energy_lines(told, energy("dp8 +bf16", "8xa100-80")[0]))
    assert "tokens/J" in lines["energy"] and lines[""].endswith("an H200 was measured at")


def test_a_processor_has_no_watts() -> None:
    asked, found = predicted(read(model="lenet", on="1xcpu", plan="dp1", batch=4))
    assert step_energy(priced(asked.setting, asked.place), found) is None


def test_measured_loads_set_aside_are_met() -> None:
    """The study's own score of what no share was chosen on; steps are 1 and 10 % off."""
    score = _study("h200_power")
    aside = [(row["id"], abs(told / real - 1)) for row, real, told in score.rows() if row["set_aside"]]
    assert len(aside) >= 8 and statistics.median(off for _, off in aside) < 0.05
    steps = [off for name, off in aside if name.startswith("step")]
    assert len(steps) >= 2 and max(steps) < 0.12


def test_the_counter_and_the_sensor_agree() -> None:
    """Two figures of the card's own, of which the score takes one."""
    score = _study("h200_power")
    every = score.readings()
    rows = [json.loads(line) for line in (score.HERE / "measured.jsonl").read_text().splitlines()]
    off = [
        abs(real / row["instant_watts"] - 1) for row in rows if "instant" in row and (real := score.watts(row, every))
    ]
    assert len(off) > 25 and statistics.median(off) < 0.02


def _study(name: str) -> Any:
    path = Path(__file__).parents[2] / "studies" / name / "score.py"
    spec = importlib.util.spec_from_file_location(f"{name}_score", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"{name}_score"] = module
    spec.loader.exec_module(module)
    return module


# Plans chosen by it, and what it emits.


def test_by_energy_no_leading_plan_draws_less() -> None:
    from foretell.oracle.energy_choice import LEADING, by_energy, joules_of
    from foretell.oracle.planning import answered

    question = read(model=MODEL, on="8xh200", batch=16)
    answer = answered(question)
    chosen = by_energy(answer)
    best = chosen.found.best
    assert best is not None and best == chosen.found.top[0]
    leading = [one for one in answer.found.plans.fastest(LEADING) if one.memory_bytes <= answer.found.capacity]
    drawn = [joules_of(answer, one.value) for one in leading]
    assert chosen.joules == min(drawn) < max(drawn)
    assert [joules_of(answer, one.value) for one in chosen.found.top] == sorted(drawn)[: len(chosen.found.top)]
    told = energy(best.plan)[1]
    assert told.joules == pytest.approx(chosen.joules)


def test_of_several_numbers_of_devices_the_one_with_least_energy_a_sample() -> None:
    from foretell.oracle.energy_choice import by_energy
    from foretell.oracle.planning import answered, best_of, on_counts

    question = read(model=MODEL, on="8xh200", batch=16)
    answers = [by_energy(answered(one)) for one in on_counts(question, [2, 8])]
    best = best_of(answers, "energy")
    assert best is not None
    assert best.joules == min(one.joules for one in answers)


def test_carbon_is_energy_times_intensity() -> None:
    from foretell.cli.rates import carbon_lines

    told = StepEnergy(
        joules=7.2e6, step_seconds=2.0, watts=500.0, limit=700.0, samples_per_joule=1.0, tokens_per_joule=1.0,
        origin="measured",
    )  # fmt: skip
    assert carbon_lines(told, 400.0, 0.0)[0][1].startswith("800 g of CO2 a step,")
    assert "4 kg in all" in carbon_lines(told, 400.0, 10.0)[0][1]
    assert "4 t in the whole training" in carbon_lines(told, 400.0, 10_000.0)[0][1]
    assert carbon_lines(told, 0.0, 0.0)[0][1].startswith("0 g")
