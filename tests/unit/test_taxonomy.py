"""Every system has its place, presets can be read, and plans and algorithms lie where their systems do."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import pytest
from click.testing import CliRunner

from answers import documented
from foretell.cli.command import cli
from foretell.cli.system_pages import advice_page, doings_page
from foretell.errors import BadInput, UnknownName
from foretell.hardware.catalog import cluster
from foretell.learning.members import ALGORITHMS, COMPRESSORS, TOPOLOGIES, composed
from foretell.oracle.predict import predict
from foretell.plan.schedule import find
from foretell.plan.text import parse
from foretell.runtime.assignment import Assignment
from foretell.taxonomy.advice import Advice, advise, techniques
from foretell.taxonomy.classify import of_algorithm, of_run, plan_classes, run_classes
from foretell.taxonomy.systems import AXES, categories, doing, matching, names, system
from foretell.taxonomy.updates import travels
from foretell.taxonomy.would import grown, shared, would
from foretell.virtual.disturbance import Disturbances
from foretell.virtual.pace import DoesNotFit, on_cluster
from foretell.virtual.simulate import Contest

LANGER = [name for name in names() if system(name).source.startswith("Langer")]
NICHOLS = [name for name in names() if system(name).source.startswith("Nichols")]


def name_of(one: object) -> str:
    return type(one).__module__.rpartition(".")[2]


def test_the_tables_of_both_papers_are_there() -> None:
    assert len(LANGER) == 17
    assert len(NICHOLS) == 12


@pytest.mark.parametrize("name", ["gems", "vdnn", "hypar", "spectrain", "micro-cudnn"])
def test_systems_that_the_papers_tell_of_say_what_they_do(name: str) -> None:
    """None is in a table of the papers; each has its own paper and a plan that comes nearest."""
    found = system(name)
    assert name not in (*LANGER, *NICHOLS) and found.source and found.remark
    assert parse(found.plan).ranks >= 1


def test_counts_of_the_taxonomy() -> None:
    """Table 1 of Langer et al.: six decentral systems; three asynchronous without a bound."""
    assert sum(system(name).optimization == "decentral" for name in LANGER) == 6
    assert sorted(set(LANGER) & set(matching({"scheduling": "asynchronous"}))) == [
        "distbelief",
        "easgd",
        "project-adam",
    ]


SHARES = "each server sums the share that is its own: in the paper's words a scatter-reduce, in plans a reduce"
CUT_ONLY = "the preset cuts the model and no batch: gradients are never exchanged"
ELSEWHERE: dict[tuple[str, str, str], str] = {
    ("bigdl", "plan", "exchange"): SHARES,
    ("byteps", "plan", "exchange"): SHARES,
    ("byteps", "run", "exchange"): SHARES,
    ("caffeonspark", "plan", "exchange"): SHARES,
    ("firecaffe", "plan", "exchange"): "plans have no trees of workers below a server; runs do",
    ("mesh-tensorflow", "plan", "exchange"): CUT_ONLY,
    ("mesh-tensorflow", "plan", "topology"): CUT_ONLY,
    ("mpca-sgd", "run", "exchange"): "its models go to one server, without the tree of the system",
    ("pipedream", "plan", "exchange"): CUT_ONLY,
    ("poseidon", "plan", "exchange"): SHARES,
    ("poseidon", "run", "exchange"): SHARES,
    ("pipedream", "plan", "topology"): CUT_ONLY,
    ("project-adam", "run", "scheduling"): "an epoch ends with three quarters of its samples, which bounds a lead",
    ("sparknet", "plan", "exchange"): "plans average by an all-reduce, not at a master; runs have the master",
    ("sparknet", "plan", "topology"): "plans average by an all-reduce, not at a master; runs have the master",
    ("tensorflow", "plan", "scheduling"): "plans have no backup workers: all wait for all",
    ("tensorflow", "plan", "exchange"): SHARES,
    ("tensorflow", "run", "scheduling"): "late gradients are dropped: none is stale, so runs count it as synchronous",
    ("tensorflow", "run", "exchange"): SHARES,
}
"""Where a preset is not on its system's place, and why."""

PLANS = [name for name in names() if system(name).plan]
RUNS = [name for name in names() if system(name).simulate]


def disagreements(name: str, kind: str, classes: Mapping[str, tuple[str, ...]]) -> set[tuple[str, str, str]]:
    """Axes on which a preset has a value that its system has not."""
    return {(name, kind, axis) for axis in AXES if not set(classes[axis]) <= set(system(name).on(axis))}


def expected(name: str, kind: str) -> set[tuple[str, str, str]]:
    return {key for key in ELSEWHERE if key[:2] == (name, kind)}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_lies_where_its_system_does(name: str) -> None:
    one = system(name)
    assert disagreements(name, "plan", plan_classes(parse(one.plan))) == expected(name, "plan")
    assert str(parse(one.plan)) == one.plan


@pytest.mark.parametrize("name", RUNS)
def test_a_run_lies_where_its_system_does(name: str) -> None:
    made = composed(system(name).simulate)
    classes = run_classes(name_of(made.algorithm), name_of(made.topology))
    assert disagreements(name, "run", classes) == expected(name, "run")


def test_every_exception_is_of_a_preset() -> None:
    assert {name for name, kind, _ in ELSEWHERE if kind == "plan"} <= set(PLANS)
    assert {name for name, kind, _ in ELSEWHERE if kind == "run"} <= set(RUNS)
    assert len(PLANS) > 20
    assert len(RUNS) > 10


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_has_a_place_on_every_axis(algorithm: str) -> None:
    for topology in TOPOLOGIES:
        for compressor in COMPRESSORS:
            classes = run_classes(algorithm, topology, compressor)
            assert set(classes) == set(categories())
            for axis, values in classes.items():
                assert set(values) <= set(categories()[axis].values), (axis, values)


@pytest.mark.parametrize(
    ("plan", "axis", "value"),
    [
        ("dp8", "exchange", "all-reduce"),
        ("dp8:zero3", "exchange", "scatter-reduce"),
        ("ps8:ssp,s3,k8", "topology", "every-worker"),
        ("ps8:async", "scheduling", "asynchronous"),
        ("gossip8", "scheduling", "soft-bounded"),
        ("ring8", "exchange", "neighbours"),
        ("local8:tau4", "optimization", "decentral"),
        ("pp4:stash +m4", "scheduling", "bounded"),
        ("tp8", "parallelism", "horizontal"),
        ("dp8 +compress:topk0.01", "compression", "sparsification"),
        ("dp8 +compress:1bit", "compression", "quantization"),
        ("dp8 +offload:optimizer", "parallelism", "out-of-core"),
    ],
)
def test_plans_are_classified(plan: str, axis: str, value: str) -> None:
    classes = plan_classes(parse(plan))
    assert value in classes[axis]
    assert set(classes) == set(categories())


def test_the_command_lists_filters_compares_and_classifies() -> None:
    def said(*words: str) -> str:
        ran = CliRunner().invoke(cli, ["systems", *words])
        assert ran.exception is None, ran.exception
        return ran.stdout

    assert [line.split()[0] for line in said().splitlines()[2:] if not line.startswith(" ")] == sorted(names())
    assert "distbelief" in said("--scheduling", "asynchronous")
    assert "petuum" not in said("--scheduling", "asynchronous")
    assert "downpour@sharded:k=4" in said("distbelief", "petuum")
    assert "horizontal" in said("--plan", "tp8")
    assert "elastic" in said("--algorithm", "easgd")
    assert all(axis in said("--axes") for axis in AXES)
    assert "  exchange      ad-hoc; ad-hoc, eager-scatter" in said("distbelief", "petuum")
    assert "  topology" not in said("distbelief", "petuum")


@pytest.mark.parametrize("name", PLANS)
def test_a_system_does_what_its_preset_does(name: str) -> None:
    """Unless the preset lies elsewhere, and a test above says why."""
    assert (name in doing(plan_classes(parse(system(name).plan)))) == (not expected(name, "plan"))


def test_a_name_or_value_nobody_knows() -> None:
    for words in (["systems", "distbelieve"], ["systems", "--topology", "rings"]):
        problem = CliRunner().invoke(cli, words).exception
        assert isinstance(problem, UnknownName)
        assert problem.fix


@pytest.mark.slow
def test_advice_weighs_what_can_be_simulated() -> None:
    asked = Contest("lenet", cluster("4xv100-16"), (4,), (), learns="squares", rates=(1.0,))
    calm, uneven = advise(asked), advise(asked._replace(disturbances=Disturbances(often=0.2, times=30.0)))
    assert calm.fits_one
    assert {one.technique for one in calm.choices} == {name for name, one in techniques().items() if one.simulate}
    assert calm.choices[0].costs == 1.0
    assert calm.use == calm.choices[0].algorithm

    def cost(of: Advice, technique: str) -> float:
        return next(one.costs or float("inf") for one in of.choices if one.technique == technique)

    assert cost(uneven, "central-sync") > cost(calm, "central-sync")
    assert any("uneven" in one for one in uneven.why)


def test_a_target_that_is_met_at_the_start_is_reached() -> None:
    asked = Contest("lenet", cluster("4xv100-16"), (4,), (), learns="squares", rates=(1.0,), target=100.0)
    found = advise(asked)
    documented("advise", msgspec.json.encode(found))
    assert {one.costs for one in found.choices} == {1.0}
    assert found.use == found.choices[0].algorithm
    assert not any("not reached" in one for one in found.why)
    assert any("before the first gradient" in one for one in found.why)
    page = advice_page(found)
    assert "not reached" not in page
    assert "a toy problem" in page


def test_other_slips_are_not_taken_for_a_model_that_does_not_fit() -> None:
    asked = Contest("lenet", cluster("4xv100-16"), (64,), (), learns="squares")
    with pytest.raises(BadInput, match="64 workers on 4 ranks"):
        advise(asked)
    with pytest.raises(DoesNotFit):
        on_cluster("llama3-8b", cluster("16xv100-16"), 1)


def test_a_model_that_fits_no_rank_has_to_be_cut() -> None:
    asked = Contest("gpt2-xl", cluster("4xv100-16"), (4,), (), learns="squares", batch=1)
    found = advise(asked)
    assert not found.fits_one
    assert found.use == found.plan != ""
    assert "has to be cut" in found.why[0]
    assert any(one.plan for one in found.cuts)
    pipelined = next(one for one in found.cuts if one.technique == "pipelined")
    assert not find(parse(pipelined.plan).axes[0].schedule).flushes  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    assert pipelined.stale == 3 and "weights up to 3 updates old" in pipelined.needs


def test_the_table_of_choices_has_the_papers_seven_criteria() -> None:
    """Langer et al. 2020, table 2, letter by letter."""
    printed = {
        "model": ("", "even", "higher", "+", "+++", "+", "trivial"),
        "pipelined": ("", "even", "lower", "++", "++++", "++", "medium"),
        "central-sync": ("", "", "higher", "+", "+", "+", "easy"),
        "central-async": ("large", "", "lower", "+++", "++", "+++", "hard"),
        "decentral-sync": ("large", "", "likely lower", "+", "++", "++", "easy"),
        "decentral-async": ("large", "", "likely lower", "++", "+++", "+++", "hard"),
    }
    assert {name: tuple(one.criteria().values()) for name, one in techniques().items()} == printed


def test_a_run_lies_where_the_algorithm_of_its_plan_lies() -> None:
    assert of_run(parse("ps4:async +compress:topk0.01")) == of_algorithm(composed("downpour@single+topk"))
    assert of_run(parse("ps4:async"), "easgd:tau=2")["consolidation"] == ("elastic",)
    assert of_run(parse("ring4"))["exchange"] == ("neighbours",)
    assert of_run(parse("dp2:zero3 tp2")) == plan_classes(parse("dp2:zero3 tp2"))


def test_what_travels_for_an_update() -> None:
    found = {one.name: one for one in travels("mlp:inputs=64,hidden=32,layers=1")}
    weights = 64 * 32 + 32 + 32 * 10 + 10
    assert found["gradient"].bytes == found["admm"].bytes == 4 * weights
    factors = sum(size * (size + 1) // 2 for size in (64, 32, 32, 10))
    assert found["k-fac"].order == "second" and found["k-fac"].bytes == 4 * (weights + factors)
    assert found["powersgd"].bytes < found["fp16"].bytes == 2 * weights
    assert found["threshold"].bytes == sum(4 * math.ceil(0.01 * size) + 4 for size in (64 * 32, 32, 32 * 10, 10))
    assert found["factors"].bytes == 4 * weights  # of 32 samples: two factors would be larger than what they make


# what systems would do


@pytest.mark.parametrize(
    ("preset", "ranks", "expected"),
    [
        ("ps8:async,k4", 16, "ps16:async,k8"),
        ("ps8:sync,k8", 4, "ps4:sync,k4"),
        ("pp2:1f1b dp2 tp4 +m4", 32, "pp2:1f1b dp4 tp4 +m4"),
        ("dp8:zero3 +offload:weights", 64, "dp64:zero3 +offload:weights"),
        ("dp4:zero3,shard8", 64, "dp8:zero3,shard8"),
        ("pp4:gpipe +m8", 16, "pp4:gpipe +m8"),
    ],
)
def test_presets_grow_with_a_cluster(preset: str, ranks: int, expected: str) -> None:
    assert str(grown(parse(preset), ranks)) == str(parse(expected))


@pytest.mark.parametrize("name", names())
def test_every_preset_grows_to_a_plan_that_a_cluster_has_room_for(name: str) -> None:
    if system(name).plan:
        preset = parse(system(name).plan)
        assert grown(preset, preset.ranks) == preset
        assert all(grown(preset, ranks).ranks <= ranks for ranks in (16, 24, 64))


def test_servers_stay_as_many_for_each_worker() -> None:
    assert shared("downpour@sharded:k=4", 16) == "downpour@sharded:k=8"
    assert shared("quorum:k=4@proxies", 16) == "quorum:k=4@proxies"


def test_what_systems_would_do_is_priced_and_learnt() -> None:
    asked = Contest("lenet", cluster("4xv100-16"), (4,), (), learns="squares", rates=(1.0,), batch=4)
    found = would(asked, ("distbelief", "ddp", "easgd", "gpipe", "megatron", "flexflow"))
    rows = {one.system: one for one in found.systems}
    assert rows["distbelief"].plan == "ps4:async,k2" and rows["distbelief"].algorithm == "downpour@sharded:k=2"
    step = predict(Assignment(model="lenet", plan="dp4", batch=16).setting, asked.cluster)
    assert rows["ddp"].step_seconds == step.step_seconds
    assert rows["easgd"].plan == "" and rows["easgd"].seconds_to_target is not None
    assert rows["megatron"].step_seconds is None and rows["megatron"].why
    assert found.systems[0].seconds_to_target == min(one.seconds_to_target or math.inf for one in found.systems)
    assert "no preset     flexflow" in doings_page(found)
