"""foretell fit: the ladder, the largest micro-batch, what would fit; and what a whole run takes."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.model.totals import totals
from foretell.oracle import batch_prober
from foretell.oracle.batch_prober import round_sizes
from foretell.oracle.fit import Fit, fit, fitted
from foretell.oracle.ladder import ladder, usual_precision
from foretell.oracle.predict import predict
from foretell.oracle.request import read
from foretell.oracle.training import (
    DAY,
    HOUR,
    Conditions,
    best_interval,
    checkpoint_bytes,
    exposed_input,
    first_order_interval,
    job_mtbf,
    training,
    wall_seconds,
)
from foretell.plan.facts import facts
from foretell.plan.job import Job, batch_ranks
from foretell.plan.plan import Plan
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer

LLAMA = "llama:layers=4,hidden=1024,heads=16,kv_heads=16,ffn=4096,vocab=32000,seq=1024"
LARGE = "llama:layers=6,hidden=4096,heads=32,kv_heads=32,ffn=16384,vocab=32000,seq=1024"

ALWAYS = ("fit",)


# the ladder


@pytest.mark.parametrize("place", ["h100", "2xrtx4090", "8xh100", "64xh100", "dgx2", "gb200-nvl72", "lassen:64"])
@pytest.mark.parametrize("model", [LLAMA, "resnet50"])
def test_every_rung_takes_all_ranks_once(place: str, model: str) -> None:
    where = cluster(place)
    plans = list(ladder(where, facts(load(model)), trainer("pytorch")))
    assert plans[0].policy(Recompute) == Recompute()
    assert {plan.ranks for plan in plans} == {where.ranks}
    assert len(set(plans)) == len(plans) <= 20
    if model == "resnet50":
        assert not any(plan.axis("tp") or plan.axis("pp") for plan in plans)
    elif where.ranks_per_node > 1:
        assert any(plan.axis("tp") for plan in plans)


def test_experts_are_divided_inside_the_node() -> None:
    plans = list(ladder(cluster("16xh100"), facts(load("mixtral-8x7b")), trainer("pytorch")))
    assert parse("dp16:zero1,ep8 +bf16") in plans


def test_a_trainer_without_shares_has_rungs_too() -> None:
    plans = list(map(str, ladder(cluster("16xh100"), facts(load(LLAMA)), trainer("megatron-lm-2019"))))
    assert "dp2 tp8 +fp16" in plans
    plans = list(map(str, ladder(cluster("16xh100"), facts(load(LLAMA)), trainer("fsdp"))))
    assert "dp2:zero2 tp8:sp +bf16" in plans


def test_the_ladder_goes_from_the_most_memory_to_the_least_within_data_parallelism() -> None:
    found = fitted(read(model="llama3-8b", on="8xh100"))[0]
    used = {rung.plan: rung.memory_bytes for rung in found.tried if rung.plan.startswith("dp")}
    assert list(used.values()) == sorted(used.values(), reverse=True)
    assert list(used)[:2] == ["dp8 +bf16", "dp8:zero1 +bf16"]


def test_precision_is_what_device_and_trainer_have() -> None:
    assert usual_precision(cluster("8xh100"), trainer("pytorch")) == "bf16"
    assert usual_precision(cluster("4xv100-16"), trainer("pytorch")) == "fp16"
    assert usual_precision(cluster("8xh100"), trainer("chainer")) == "fp32"


def test_plans_that_the_trainer_does_not_run_are_refused_not_predicted() -> None:
    found = fitted(read(model="llama3-8b", on="8xh100", trainer="fsdp"))[0]
    refused = {rung.plan: rung.why for rung in found.tried if rung.why}
    assert "dp8:zero1 +bf16" in refused
    assert found.plan not in refused


# the largest micro-batch


def _again(found: Fit, model: str, micro: int, trainer_name: str = "pytorch") -> Any:
    """A prediction made apart from the search, of the same plan with another micro-batch."""
    plan = parse(found.plan)
    graph = load(model, micro * batch_ranks(plan), None, "bf16")
    setting = Setting(graph, Job(batch=graph.batch * plan.microbatches), plan, trainer(trainer_name))
    return predict(setting, cluster(found.cluster))


@pytest.mark.parametrize(
    ("model", "place", "plan"),
    [
        (LLAMA, "a10", "dp1 +bf16"),
        (LLAMA, "2xa10", "dp2:zero3 +bf16"),
        (LLAMA, "2xa10", "tp2:sp +recompute:block +bf16"),
        (LLAMA, "2xa10", "pp2:1f1b +m4 +bf16"),
        ("resnet50", "a10", "dp1 +bf16"),
    ],
)
def test_the_largest_fits_and_the_next_does_not(model: str, place: str, plan: str) -> None:
    found = fitted(read(model=model, on=place, plan=plan))[0]
    assert found.fits
    assert found.limit == "memory"
    assert _again(found, model, found.micro_batch) == found.prediction
    next_size = found.micro_batch + 1 if found.micro_batch < 64 else math.ceil(found.micro_batch * 1.04)
    assert not _again(found, model, next_size).fits
    assert found.free_bytes == pytest.approx(found.prediction.usable - found.prediction.memory_bytes)


@pytest.mark.parametrize("plan", ["dp2 +bf16", "dp2:zero3 +bf16", "tp2:sp +bf16", "pp2:1f1b +m4 +bf16"])
def test_memory_grows_with_the_samples(plan: str) -> None:
    used: list[float] = []
    for micro in (1, 2, 3, 5, 8, 13):
        graph = load(LLAMA, micro * batch_ranks(parse(plan)), None, "bf16")
        batch = graph.batch * parse(plan).microbatches
        found = predict(Setting(graph, Job(batch=batch), parse(plan), trainer("pytorch")), cluster("2xh100"))
        used.append(found.memory_bytes)
    assert used == sorted(used)


@given(st.integers(1, 10**7))
def test_sizes_are_dense_enough(most: int) -> None:
    sizes = round_sizes(most)
    assert sizes[0] == 1
    assert all(low < high <= max(low + 1, low * 1.04) for low, high in itertools.pairwise(sizes))
    assert sizes[-1] <= most <= max(sizes[-1] * 1.04, sizes[-1])


def test_a_batch_is_taken_in_micro_batches() -> None:
    found = fitted(read(model=LLAMA, on="2xa10", plan="dp2 +bf16", batch=96))[0]
    assert found.fits
    assert found.prediction.batch == 96
    assert found.micro_batch * 2 * found.prediction.microbatches == 96
    small = fitted(read(model=LLAMA, on="2xh100", plan="dp2 +bf16", batch=8))[0]
    assert (small.micro_batch, small.limit) == (4, "batch")


def test_few_predictions_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(setting: Setting, where: Any) -> Any:
        made.append(str(setting.plan))
        return predict(setting, where)

    monkeypatch.setattr(batch_prober, "predict", counted)
    fitted(read(model=LLAMA, on="2xa10", plan="dp2 +bf16"))
    assert len(made) <= 10


def test_the_fastest_of_those_that_fit_is_taken() -> None:
    found = fitted(read(model="llama3-8b", on="8xh100"))[0]
    fitting = [rung for rung in found.tried if rung.fits]
    fastest = max(rung.samples_per_second for rung in fitting)
    chosen = next(rung for rung in fitting if rung.plan == found.plan)
    assert chosen.samples_per_second >= 0.98 * fastest
    assert not found.changes


# what would fit


@pytest.mark.parametrize(
    ("plan", "batch"),
    [("", None), ("dp2 +bf16", None), ("dp2 +bf16", 8), ("dp2:zero3 +m2 +bf16", 64)],
)
def test_what_would_fit_does_when_it_is_predicted(plan: str, batch: int | None) -> None:
    place = "2xa10" if plan else "2xt4"
    found = fitted(read(model=LARGE, on=place, plan=plan or None, batch=batch))[0]
    assert not found.fits
    assert found.free_bytes < 0
    assert found.prediction.memory.peak_moment
    assert math.isclose(sum(found.prediction.memory.by_kind.values()), found.prediction.memory_bytes)
    assert found.changes
    for change in found.changes:
        changed = fitted(read(model=LARGE, on=change.cluster, plan=change.plan, batch=batch, seq=change.seq or None))[0]
        assert changed.fits, change
        if batch:
            assert changed.prediction.batch == batch


def test_the_one_that_misses_by_least() -> None:
    found = fitted(read(model=LARGE, on="2xt4"))[0]
    assert found.prediction.memory_bytes == min(rung.memory_bytes for rung in found.tried if not rung.why)


def test_nothing_would_fit() -> None:
    wide = "llama:layers=2,hidden=65536,heads=64,kv_heads=64,ffn=262144,vocab=32000,seq=1024"
    found = fitted(read(model=wide, on="gtx1080", plan="dp1 +fp32"))[0]
    assert (found.fits, found.changes) == (False, ())


# a whole run


def test_the_best_interval_is_the_papers() -> None:
    # Daly 2006, Figures 3 to 5: 117, 57 and 9.1 minutes for 24 h, 6 h and 15 min, writing 5 minutes.
    assert [round(best_interval(5.0, mtbf)) for mtbf in (1440.0, 360.0)] == [117, 57]
    assert best_interval(5.0, 15.0) == pytest.approx(9.1, abs=0.05)


@given(st.floats(1.0, 600.0), st.floats(HOUR, 30 * DAY), st.floats(0.0, HOUR))
def test_no_other_interval_is_much_better(dump: float, mtbf: float, restart: float) -> None:
    best = wall_seconds(DAY, best_interval(dump, mtbf), dump, mtbf, restart)
    others = [wall_seconds(DAY, best_interval(dump, mtbf) * share, dump, mtbf, restart) for share in (0.5, 0.9, 1.1, 2)]
    assert best <= min(others) * 1.0005
    assert best_interval(dump, mtbf) < first_order_interval(dump, mtbf) * 1.1
    assert best > DAY


def test_the_wall_time_is_what_a_played_run_takes() -> None:
    """Failures drawn at random, segment by segment, against the formula."""
    chance = random.Random(1)
    interval, dump, mtbf, restart, segments = 40.0, 5.0, 90.0, 10.0, 20_000
    clock = 0.0
    left = chance.expovariate(1 / mtbf)
    for _ in range(segments):
        need = interval + dump
        while left < need:  # work since the last checkpoint is lost; the restart can fail too
            clock += left
            left = chance.expovariate(1 / mtbf)
            need = restart + interval + dump
        clock += need
        left -= need
    assert clock == pytest.approx(wall_seconds(segments * interval, interval, dump, mtbf, restart), rel=0.02)


def test_failures_of_the_published_run() -> None:
    # Grattafiori et al. 2024 (Llama 3), section 3.3.4: 419 failures in 54 days on 16,384 devices.
    device = 54 * DAY * 16384 / 419
    assert job_mtbf(16384, 2048, device, math.inf) == pytest.approx(54 * DAY / 419)
    assert job_mtbf(16384, 2048, math.inf, device) == pytest.approx(8 * 54 * DAY / 419)
    assert job_mtbf(16384, 2048, math.inf, math.inf) == math.inf


def test_input_costs_only_what_computation_does_not_hide() -> None:
    assert exposed_input(2.0, 100, 1, 100.0) == 0.0
    assert exposed_input(2.0, 100, 1, 25.0) == 2.0
    assert exposed_input(2.0, 100, 4, 25.0) == 0.0
    rates = numpy.array([10.0, 25.0, 1000.0])
    assert list(exposed_input(2.0, 100, 1, rates)) == [exposed_input(2.0, 100, 1, float(rate)) for rate in rates]


@pytest.fixture(scope="module")
def run() -> tuple[Fit, Setting]:
    return fitted(read(model=LLAMA, on="2xa10", plan="dp2 +bf16", batch=16))


def test_a_run_that_nothing_disturbs_is_its_steps(run: tuple[Fit, Setting]) -> None:
    found, setting = run
    tokens = 16 * 1024 * 1000.0
    whole = training(found.prediction, setting, cluster("2xa10"), tokens=tokens)
    assert whole.steps == 1000
    assert whole.seconds == pytest.approx(tokens / found.prediction.tokens_per_second)
    assert (whole.goodput, whole.failures, whole.cost, whole.interval) == (1.0, 0.0, 0.0, math.inf)


def test_each_condition_makes_a_run_longer(run: tuple[Fit, Setting]) -> None:
    found, setting = run

    def seconds(**conditions: float) -> float:
        return training(found.prediction, setting, cluster("2xa10"), Conditions(**conditions), samples=1e6).seconds

    plain = seconds()
    written = seconds(storage=1e9, interval=600.0)
    assert plain < written < seconds(storage=1e9, interval=600.0, device_mtbf=30 * DAY)
    assert seconds(storage=1e9, device_mtbf=DAY) < seconds(storage=1e9, device_mtbf=DAY, restart=600.0)
    assert seconds(storage=1e9, device_mtbf=DAY) < seconds(storage=1e8, device_mtbf=DAY)
    assert seconds(input_rate=1.0) == pytest.approx(1e6)
    assert seconds(storage=1e9, dataset=1e12) == pytest.approx(plain + 1000)
    priced = training(found.prediction, setting, cluster("2xa10"), Conditions(price=3.0), samples=1e6)
    assert priced.cost == pytest.approx(2 * priced.seconds / HOUR * 3.0)


def test_a_checkpoint_holds_each_weight_once(run: tuple[Fit, Setting]) -> None:
    _, setting = run
    parameters = totals(setting.graph).parameters
    assert checkpoint_bytes(setting) == 14 * parameters  # bf16 weight, fp32 master copy, Adam's two states
    sharded = msgspec.structs.replace(setting, plan=parse("dp2:zero3 +bf16"))
    assert checkpoint_bytes(sharded) == checkpoint_bytes(setting)


def test_a_checkpoint_holds_frozen_weights_in_the_bits_that_they_rest_in() -> None:
    """The dense layers of all layers in the 4.5 bits of nf4: checkpoints differ by these alone."""
    graph, job = load("llama3-8b:dtype=bf16,seq=512", 1), Job(batch=1)
    adapted, packed = (
        checkpoint_bytes(Setting(graph, job, parse(f"dp1 +bf16:pure +lora16{more}"), trainer("pytorch")))
        for more in ("", " +nf4")
    )
    dense = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert adapted - packed == pytest.approx(dense * (2 - 4.5 / 8), rel=1e-12)


@pytest.mark.parametrize(
    "conditions",
    [{"price": -1.0}, {"input_rate": 0.0}, {"device_mtbf": DAY}, {"interval": 60.0}, {"dataset": 1e9}],
)
def test_conditions_that_make_no_sense(conditions: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Conditions(**conditions)


def test_a_run_that_never_ends_says_so() -> None:
    with pytest.raises(BadInput, match="no run ever ends"):
        wall_seconds(DAY, HOUR, 60.0, 1.0, 60.0)


# the command


def test_the_first_line_is_the_answer(foretell: Any) -> None:
    ran = foretell(LLAMA, "--on", "2xa10", "--plan", "dp2 +bf16", "--tokens", "1e9", "--price", "2", "--batch", "16")
    assert ran.code == 0
    assert " fits 2xa10: dp2 " in ran.out.splitlines()[0]
    assert "training" in ran.out
    assert "cost" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_what_does_not_fit_says_when_and_what_would(foretell: Any) -> None:
    ran = foretell(LARGE, "--on", "2xa10", "--plan", "dp2 +bf16")
    assert ran.code == 1
    assert "does not fit" in ran.out
    assert "peak memory, worst rank" in ran.out
    assert "what would fit" in ran.out
    assert "peak during the " in ran.out
    assert max(map(len, (ran.out + ran.err).splitlines())) <= 80 + len(LARGE)


def test_refused_plans_are_named_not_predicted(foretell: Any) -> None:
    ran = foretell("llama3-8b", "--on", "8xh100", "--trainer", "fsdp")
    assert "refused: fsdp: dp8:zero1" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_json_has_the_same(foretell: Any) -> None:
    arguments = (LLAMA, "--on", "2xa10", "--plan", "dp2 +bf16", "--batch", "16")
    ran = foretell(*arguments, "--json", "--samples", "1e6", "--storage", "1 GB/s", "--device-mtbf", "100h")
    answer = json.loads(ran.out)
    assert answer["fits"] is True
    assert answer["prediction"]["step_seconds"] > 0
    assert answer["training"]["interval"] > 0
    assert answer["training"]["failures"] > 0
    assert {"plan", "micro_batch", "free_bytes", "sample_bytes", "tried", "changes"} <= answer.keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet50",), "no cluster"),
        (("resnet50", "--on", "8xh101"), "h100"),
        (("resnet5", "--on", "h100"), "resnet50"),
        (("resnet50", "--on", "h100", "--plan", "dpp4"), "dp"),
        (("resnet50", "--on", "h100", "--plan", "dp4"), "dp4 does not fit"),
        (("resnet50", "--on", "h100", "--batch", "0"), "a batch of 0"),
        (("resnet50", "--on", "h100", "--price", "2"), "its length is not given"),
        (("resnet50", "--on", "h100", "--tokens", "1e9"), "--samples"),
        (("resnet50", "--on", "h100", "--samples", "-3"), "positive"),
        (("resnet50", "--on", "h100", "--samples", "1e6", "--device-mtbf", "50000h"), "storage"),
        (("resnet50", "--on", "h100", "--samples", "1e6", "--storage", "fast"), "TB/s"),
        (("resnet50", "--on", "h100", "--samples", "1e6", "--storage", "1 GB/s", "--interval", "30"), "min"),
        (("resnet50", "--on", "h100", "--trainer", "pytorsh"), "pytorch"),
        (("resnet50", "--on", "h100", "--optimizer", "adan"), "adam"),
        (("resnet50", "--on", "8xh100", "--batch", "7"), "multiple"),
    ],
)
def test_bad_input_is_a_message(foretell: Any, arguments: tuple[str, ...], said: str) -> None:
    ran = foretell(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_the_plan_is_frozen_text() -> None:
    found = fitted(read(model=LLAMA, on="2xa10", plan=Plan(axes=parse("dp2").axes, policies=parse("+bf16").policies)))[
        0
    ]
    assert parse(found.plan).ranks == 2


def test_one_node_that_is_too_small_is_told_of_adapters() -> None:
    small = fit(read(model="llama3-8b", on="1xrtx4090", calibration="none"))
    change, packed = (one for one in small.changes if "+lora16" in one.what)
    assert packed.what == "+lora16 +nf4" and not packed.seq
    assert change.what == "+lora16, sequences of 2048" and change.seq == 2048 and "+lora16" in change.plan
    again = fit(read(model="llama3-8b", on="1xrtx4090", plan=change.plan, seq=2048, calibration="none"))
    assert again.fits and again.prediction.memory_bytes == pytest.approx(change.memory_bytes, rel=0.2)
    nodes = fit(read(model="llama3-405b", on="2x8xh100", plan="dp16 +bf16", batch=16, calibration="none"))
    assert not [one for one in nodes.changes if "lora" in one.what]
