"""One value for what goes wrong, whoever is given it: as it is typed, on a cluster, in predictions, in virtual time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import foretell as package
from foretell.cli.command import cli
from foretell.cli.disturbance_options import typed
from foretell.cli.verbs.run import command as run_command
from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.hardware.disturbance import BackgroundTraffic, Disturbance, SlowLink, SlowRank, read, with_disturbed_links
from foretell.lab.describe import described
from foretell.lab.network import LabNetwork, slowed
from foretell.oracle.training import Conditions
from foretell.virtual.disturbance import CALM
from foretell.virtual.pace import Disturbed, Even

HOSTS = described(LabNetwork(hosts=4, rate=12.5e6, delay=1e-3))
NODES = catalog.cluster("16xa100-80")
TIMES = st.floats(1, 100)
RANKS = st.integers(0, 3)
PAIRS = st.tuples(RANKS, RANKS).filter(lambda pair: pair[0] < pair[1])

DISTURBANCES = st.builds(
    Disturbance,
    st.lists(st.builds(SlowRank, RANKS, TIMES), unique_by=lambda one: one.rank).map(tuple),
    st.lists(st.builds(SlowLink, PAIRS, st.floats(1, 4)), unique_by=lambda one: one.ends).map(tuple),
    st.lists(st.builds(BackgroundTraffic, st.just(0), st.integers(1, 3), st.floats(1e3, 5e5)), max_size=3).map(tuple),
)


@given(DISTURBANCES)
def test_what_is_typed_for_a_disturbance_is_read_as_it(found: Disturbance) -> None:
    words = typed(found)
    told: dict[str, list[str]] = {"--slow-rank": [], "--slow-link": [], "--traffic": []}
    for option, text in zip(words[::2], words[1::2], strict=True):
        told[option].append(text)
    again = read(*told.values())
    assert (again.ranks, again.links) == (found.ranks, found.links)
    for one, other in zip(again.traffic, found.traffic, strict=True):
        assert (one.source, one.target) == (other.source, other.target)
        assert one.rate == pytest.approx(other.rate, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"ranks": ["1"]}, "--slow-rank"),
        ({"ranks": ["one:2x"]}, "--slow-rank"),
        ({"ranks": ["1:0.5x"]}, "1 or more"),
        ({"ranks": ["1:2x", "1:3x"]}, "twice"),
        ({"ranks": ["\u00b2:2x"]}, "--slow-rank"),
        ({"ranks": ["\u0661:2x"]}, "--slow-rank"),
        ({"ranks": ["9" * 5000 + ":2x"]}, "--slow-rank"),
        ({"ranks": ["1:" + "9" * 400 + "x"]}, "1 or more"),
        ({"links": ["0-" + "9" * 5000 + ":2x"]}, "--slow-link"),
        ({"links": ["0-0:2x"]}, "0-1"),
        ({"links": ["0-1"]}, "0-1:4x"),
        ({"links": ["1-0:2x", "0-1:3x"]}, "twice"),
        ({"traffic": ["0-1"]}, "500Mbit"),
        ({"traffic": ["0-1:fast"]}, "--traffic"),
    ],
)
def test_slips_are_told(given: dict[str, Any], word: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(**given)
    assert word in f"{caught.value.what} {caught.value.where} {caught.value.fix}"


def test_ranks_that_are_not_there_are_refused() -> None:
    for words in (["9:2x"], [], []), ([], ["0-9:2x"], []), ([], [], ["9-0:1Mbit"]):
        with pytest.raises(BadInput, match="no rank 9 among 2"):
            read(*words).check(2)


# on a cluster


@given(DISTURBANCES)
def test_links_only_become_slower_and_messages_never_faster(found: Disturbance) -> None:
    slow = with_disturbed_links(HOSTS, found)
    for before, after in zip(HOSTS.levels, slow.levels, strict=True):
        assert after.link.bandwidth <= before.link.bandwidth
    cost = [collective_seconds("all-reduce", 1e6, Group(4), one).seconds for one in (HOSTS, slow)]
    assert cost[0] <= cost[1]


def test_a_link_belongs_to_the_level_at_which_two_ranks_meet() -> None:
    inside, across = (with_disturbed_links(NODES, read(links=[text])) for text in ("0-1:4x", "0-8:4x"))
    node, fabric = (level.link.bandwidth for level in NODES.levels)
    assert [level.link.bandwidth for level in inside.levels] == [node / 4, fabric]
    assert [level.link.bandwidth for level in across.levels] == [node, fabric / 4]


def test_other_jobs_add_up_at_a_port_and_may_not_take_all_of_it() -> None:
    two = with_disturbed_links(HOSTS, read(traffic=["0-1:20Mbit", "0-2:30Mbit"]))
    assert two.levels[1].link.bandwidth == pytest.approx(12.5e6 - 50e6 / 8)
    apart = with_disturbed_links(HOSTS, read(traffic=["0-1:20Mbit", "1-2:30Mbit"]))
    assert apart.levels[1].link.bandwidth == pytest.approx(12.5e6 - 30e6 / 8)
    with pytest.raises(BadInput, match="100 Mb/s"):
        with_disturbed_links(HOSTS, read(traffic=["0-1:100Mbit"]))


def test_the_lab_makes_the_link_that_is_predicted() -> None:
    """What the switch is told and what the description has after the same words."""
    network, words = LabNetwork(hosts=2, rate=12.5e6, delay=1e-3), read(links=["0-1:4x"])
    made = slowed(network, words.links).between(0, 1)
    reckoned = with_disturbed_links(described(network), words).levels[1].link
    assert (made.rate, made.delay) == (reckoned.bandwidth, reckoned.hop_seconds)


# in predictions


def _predicted(plan: str, *words: list[str], on: Any = "4xa100-80", model: str = "resnet50", batch: int = 64) -> Any:
    return package.predict(model, on, plan, batch, calibration="none", disturbance=read(*words) if words else None)


def test_nothing_wrong_is_the_same_prediction() -> None:
    assert _predicted("dp4") == _predicted("dp4", [], [], [])


@pytest.mark.parametrize("plan", ["dp4", "dp4:zero3", "filter4", "pp4:1f1b +m8", "dp2 pp2:gpipe +m4"])
def test_all_wait_for_a_slow_rank_and_it_is_named(plan: str) -> None:
    calm, slow, slower = (_predicted(plan, *words) for words in ((), (["3:2x"],), (["3:4x"],)))
    assert calm.step_seconds < slow.step_seconds < slower.step_seconds
    assert slower.step_seconds <= 4 * calm.step_seconds * (1 + 1e-9)
    first = slow.bottlenecks[0]
    assert first.name == "straggler" and "rank 3 " in first.why
    assert first.share == pytest.approx(1 - calm.step_seconds / slow.step_seconds)
    assert sum(slow.breakdown.values()) == pytest.approx(slow.step_seconds)


def test_in_a_pipeline_it_matters_which_stage_is_slow() -> None:
    """The rank of a light stage may be slower than the rank of a heavy one before anybody waits for it longer: here
    the first stage has half as much again as the others."""
    calm = _predicted("pp4:1f1b +m8").step_seconds
    first, *_, last = (_predicted("pp4:1f1b +m8", [f"{rank}:1.5x"]).step_seconds for rank in range(4))
    assert first > 1.3 * calm
    assert last == pytest.approx(calm)


def test_in_a_pipeline_all_wait_for_the_rank_that_computes_longest() -> None:
    """Not for the one with the largest factor, where its stage is light."""
    alone = {rank: _predicted("pp4:1f1b +m8", [f"{rank}:3x"]).step_seconds for rank in range(4)}
    heavy, light = max(alone, key=alone.__getitem__), min(alone, key=alone.__getitem__)
    assert alone[light] < alone[heavy]
    found = _predicted("pp4:1f1b +m8", [f"{heavy}:3x", f"{light}:3.0001x"])
    assert found.step_seconds == pytest.approx(alone[heavy])
    assert f"rank {heavy} " in found.bottlenecks[0].why


@pytest.mark.parametrize("plan", ["dp4", "pp4:1f1b +m8"])
@pytest.mark.parametrize("input_rate", [math.inf, 500.0])
def test_a_whole_run_is_made_of_steps_with_the_slow_rank(plan: str, input_rate: float) -> None:
    conditions = Conditions(input_rate=input_rate)
    found = package.predict(
        "resnet50", "4xa100-80", plan, 64, calibration="none", disturbance=read(["3:4x"]),
        samples=6400, price=2.0, conditions=conditions,
    )  # fmt: skip
    assert found.training is not None
    assert found.training.step_seconds == pytest.approx(found.step_seconds)
    assert found.training.seconds == pytest.approx(100 * found.step_seconds)
    assert found.training.cost == pytest.approx(4 * 2.0 * found.training.seconds / 3600)
    assert found.step_seconds >= 64 / input_rate
    assert sum(found.breakdown.values()) == pytest.approx(found.step_seconds)


@pytest.mark.parametrize("option", ["--trace", "--html", "--keep"])
def test_files_of_a_calm_machine_are_refused(option: str, tmp_path: Path) -> None:
    words = ["predict", "lenet", "--on", "2xa100-80", "--plan", "dp2", "--batch", "8", "--slow-rank", "0:2x"]
    said = CliRunner().invoke(cli, [*words, option, str(tmp_path / "file")]).exception
    assert isinstance(said, BadInput) and said.where == option
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--fig14"], ["lenet", "--batches", "8..16"], ["--record", "run.json"]])
def test_what_has_no_machine_takes_no_disturbance(words: list[str]) -> None:
    said = CliRunner().invoke(cli, ["simulate", *words, "--slow-rank", "0:2x"]).exception
    assert isinstance(said, BadInput) and said.where in words


@pytest.mark.parametrize(
    ("words", "where", "fix"),
    [
        (["systems", "--bytes", "lenet", "--plan", "dp2"], "--bytes", "one of them"),
        (["sweep", "--ask", "run", "--model", "lenet", "--batch", "8", "--plan", "dp2"], "--on", "--on this-machine"),
    ],
)
def test_questions_that_are_not_whole_say_what_would_be(words: list[str], where: str, fix: str) -> None:
    said = CliRunner().invoke(cli, words).exception
    assert isinstance(said, BadInput) and (said.where, said.fix) == (where, fix)


def test_a_slow_link_and_another_job_name_the_axis() -> None:
    calm = _predicted("dp4", on=HOSTS, model="lenet")
    for words, name in (([], ["1-2:3x"]), "slow link"), (([], [], ["1-2:50Mbit"]), "network congestion"):
        found = _predicted("dp4", *words, on=HOSTS, model="lenet")
        assert found.step_seconds > calm.step_seconds
        assert found.bottlenecks[0].name == name and "along dp" in found.bottlenecks[0].why
        assert found.breakdown["exposed.dp"] > calm.breakdown["exposed.dp"]


def test_a_prediction_refuses_ranks_that_its_plan_has_not() -> None:
    with pytest.raises(BadInput, match="no rank 9 among 2"):
        _predicted("dp2", ["9:2x"])


# runs, and virtual time


def test_a_run_refuses_ranks_and_links_that_are_not_there() -> None:
    for words, said in (("--slow-rank", "9:2x"), "no rank 9 among 2"), (("--traffic", "0-1:1Mbit"), "no links"):
        found = CliRunner().invoke(run_command, ["lenet", "--plan", "dp2", "--batch", "8", *words])
        assert isinstance(found.exception, BadInput)
        assert said in found.exception.what


def test_workers_of_virtual_time_are_slow_by_their_number() -> None:
    import numpy

    draws = numpy.random.default_rng(0)
    slow = CALM._replace(machine=read(["2:3x"]))
    assert [slow.factor(worker, 4, draws) for worker in range(4)] == [1, 1, 3, 1]


@given(st.floats(1, 1e9), PAIRS, DISTURBANCES)
def test_flights_of_virtual_time_take_as_long_as_is_left_of_their_link(
    size: float, ends: tuple[int, int], found: Disturbance
) -> None:
    calm = Even(12.5e6, 1e-3)
    latency, busy = Disturbed(calm, found).flight(*ends, size)
    assert latency == 1e-3
    assert busy >= calm.flight(*ends, size).busy * (1 - 1e-12)
    assert math.isclose(busy, size / found.left(12.5e6, *ends), rel_tol=1e-9)


def test_a_record_keeps_what_was_made_to_go_wrong() -> None:
    from foretell.runtime.assignment import Assignment

    asked = Assignment(model="lenet", plan="dp2", disturbance=read(["1:2x"], ["0-1:4x"], ["0-1:1Mbit"]))
    assert msgspec.convert(msgspec.to_builtins(asked), Assignment) == asked
    assert msgspec.json.decode(msgspec.json.encode(asked), type=Assignment) == asked
