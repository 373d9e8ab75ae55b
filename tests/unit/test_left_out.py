"""The score of sources left out: what takes part in it, and what a source that was never seen takes with it."""

import math
from collections import Counter

import msgspec
import pytest

from foretell.hardware import catalog, members
from foretell.oracle.carried import RunTraits
from foretell.oracle.predict import predict
from foretell.plan.trainer import CONSTANTS, names, trainer
from foretell.validation import left_out, published
from foretell.validation.ablation import ablated
from foretell.validation.constants import fitted
from foretell.validation.evaluate import compare
from foretell.validation.in_view import (
    TOGETHER,
    Slot,
    changed,
    cluster_without,
    constants_without,
    holder,
    in_groups,
    in_view,
    own,
    slots_of,
)
from foretell.validation.left_out import STEPS, candidates, chosen_again, encoded
from foretell.validation.sides import predicted
from foretell.validation.sources import source_of
from foretell.validation.study import read
from foretell.validation.unseen import RowCounts, UnseenRun, unseen_runs, unseen_scores

NO_RUNS = {
    ("pytorch", "attention.kernel"),
    ("torchtitan-2025", "attention.kernel"),
}
"""Their sources speak of published runs, and say why papers were believed instead."""


def test_slots_are_constants_that_their_owners_give():
    for slot in in_view():
        if slot.kind == "kernels":
            known = {**{name: members.architecture(name).reached for name in members.names("architectures")}}
            known |= {name: members.device(name).reached for name in members.names("devices")}
            assert slot.key in known[slot.owner], slot
        else:
            assert slot.key in CONSTANTS and slot.key in own(slot.owner), slot


def test_every_constant_whose_source_speaks_of_runs_says_which():
    """A constant that was fitted and is not listed would make the score of its source too good."""
    silent = [
        (one.owner, one.name)
        for one in fitted()
        if one.owner.startswith("trainer ")
        and Slot("trainers", one.owner.removeprefix("trainer "), one.name) not in in_view()
        and (one.owner.removeprefix("trainer "), one.name) not in NO_RUNS
    ]
    assert silent == []
    told = {(slot.owner, slot.key) for slot in in_view() if slot.kind == "kernels"}
    steps = [one.name.split() for one in fitted() if one.owner == "kernels" and "training steps" in one.source]
    assert {tuple(name) for name in steps} == told


def test_a_trainer_without_its_source_is_the_one_below():
    without = changed(trainer("nanotron"), constants_without("nanotron", "ultrascale_h100", {}))
    below = trainer("pytorch")
    for slot in slots_of("ultrascale_h100"):
        if slot.owner == "nanotron":
            assert without.constant(slot.key) == below.constant(slot.key), slot
    for key in set(CONSTANTS) - {slot.key for slot in slots_of("ultrascale_h100")}:
        assert without.constant(key) == trainer("nanotron").constant(key)


def test_what_a_source_was_not_in_view_of_stays():
    for name in names():
        assert constants_without(name, "nobody", {}) == {}
    cluster = catalog.cluster("8xh100")
    assert cluster_without(cluster, "nobody", {}) is cluster


def test_constants_chosen_again_take_the_place():
    slot = Slot("trainers", "megatron-core", "gradients.rate")
    assert constants_without("nemo", "mlperf-logs", {slot: 0.33})["gradients.rate"] == 0.33
    kernels = Slot("kernels", "hopper", "matrix")
    other = cluster_without(catalog.cluster("8xh100"), "dgxc-benchmarking", {kernels: 0.5})
    assert other.device.reached["matrix"].products == 0.5
    assert cluster_without(catalog.cluster("8xa100-80"), "dgxc-benchmarking", {kernels: 0.5}).device.reached == {}


SOURCES = sorted({source for sources in in_view().values() for source in sources})


@pytest.mark.parametrize("source", SOURCES)
def test_candidates_never_saw_the_source(source: str):
    """What is chosen among did not come from the source that is left out, or lies below the largest of the rest."""
    for slot in (group[0] for group in in_groups(slots_of(source)) if group[0].key not in TOGETHER):
        found = [way[slot] for way in candidates([slot], source)]
        if slot.kind == "trainers":
            owners = {trainer(name).name for name in names() if slot.key in own(trainer(name).name)}
            free = [name for name in owners if source not in in_view().get(Slot("trainers", name, slot.key), ())]
            others = {str(trainer(name).constant(slot.key)) for name in free}
            top = max((number for name in free for number in _numbers(name, slot.key)), default=0.0)
            steps = {str(value) for share in STEPS for value in (top * share, (("any", top * share),))}
            assert {str(value) for value in found} <= others | steps
            assert not found or str(found[0]) in others


@pytest.mark.parametrize("source", SOURCES)
def test_the_hosts_time_is_counted_one_way(source: str):
    """For each launch or for each layer: no software's way is mixed with another's, nor was any seen."""
    for group in (group for group in in_groups(slots_of(source)) if group[0].key in TOGETHER):
        free = {
            tuple(trainer(name).constant(key) for key in TOGETHER)
            for name in names()
            if not any(source in in_view().get(Slot("trainers", holder(name, key), key), ()) for key in TOGETHER)
        }
        for way in candidates(group, source):
            launch, layer, again = (
                way.get(Slot("trainers", group[0].owner, key), trainer(group[0].owner).constant(key))
                for key in TOGETHER
            )
            assert (launch > 0) != (layer > 0), way
            assert any(one[2] == again and (launch <= one[0] if launch else 0 < layer <= one[1]) for one in free), way


@pytest.mark.parametrize("source", SOURCES)
def test_what_ships_counts_the_hosts_time_one_way(source: str):
    """Of every trainer, with its constants as they are without the source."""
    for name in names():
        made = changed(trainer(name), constants_without(name, source, chosen_again().get(source, {})))
        assert not (made.host.launch > 0 and made.host.layer > 0), name


def _numbers(name: str, key: str) -> list[float]:
    value = trainer(name).constant(key)
    if isinstance(value, tuple) and [word for word, _ in value] == ["any"]:
        return [value[0][1]]
    return [value] if isinstance(value, float) and math.isfinite(value) else []


MISSES = {
    "below": {"a": 0.20, "b": 0.20, "c": 0.20},
    "one likes it": {"a": 0.02, "b": 0.21, "c": 0.21},
    "all like it": {"a": 0.15, "b": 0.16, "c": 0.14},
}


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        (["below", "one likes it"], "below"),
        (["below", "all like it"], "all like it"),
        (["below", "one likes it", "all like it"], "all like it"),
        (["all like it", "below"], "all like it"),
    ],
)
def test_a_constant_departs_from_below_where_sources_agree(
    monkeypatch: pytest.MonkeyPatch, values: list[str], taken: str
):
    """0.053 better in the mean, 0.063 its standard error: one source's constant; 0.05 and 0.006: a trainer's."""
    slot = Slot("trainers", "megatron-core", "gradients.rate")
    monkeypatch.setattr(left_out, "misses_of", lambda runs, source, ways: [MISSES[way[slot]] for way in ways])
    assert left_out._best([], "d", {}, [{slot: value} for value in values]) == {slot: taken}


def test_what_a_constant_is_worth():
    """Rows of vTrain: alone in using most constants of their trainer, which predictions are worse without."""
    study = read(published.FOLDER / "vtrain_single.csv")
    runs = left_out.prepared(("vtrain", one) for one in compare(study.rows[::40], predict))
    found = {(one.owner, one.key): one for one in ablated(runs)}
    assert {owner for owner, _ in found} == {"megatron-deepspeed"}  # nothing is below pytorch
    host = found["megatron-deepspeed", "host.launch"]  # with all that goes with it
    assert host.felt and host.stays and host.seen > 0.01 and host.unseen is None
    assert ("megatron-deepspeed", "host.layer") not in found
    assert not any(key.startswith(("memory.", "storage.extra")) for _, key in found)


def test_what_ships_is_of_slots_and_reads_back():
    shipped = chosen_again()
    assert shipped, "foretell validate --choose"
    for source, values in shipped.items():
        assert set(values) <= set(slots_of(source))
    kept = msgspec.json.decode(encoded(shipped), type=dict[str, list[dict[str, object]]])
    assert {source: len(values) for source, values in kept.items()} == {
        source: len(values) for source, values in shipped.items() if values
    }


def test_the_score_by_hand():
    """Two sources, one of one run: errors 0.25 and 0 unseen; the anchor takes the bias off."""
    half, same = math.log(1 / 1.25), 0.0
    traits, seconds = RunTraits("t", "h100", "m", 8, ("q",)), (1.0, 0.0, 0.0)
    runs = [UnseenRun("s", "a", "t", same, half, same, True, traits, seconds) for _ in range(3)] + [
        UnseenRun("s", "b", "t", same, same, half, False, traits, seconds)
    ]
    counts = RowCounts(Counter({("all", "all"): 8}), Counter({("all", "all"): 6}))
    found = unseen_scores(runs, counts)
    assert found.all is not None
    assert found.all.unseen == pytest.approx(0.125)
    assert found.all.seen == 0.0
    assert found.all.anchored == pytest.approx(0.0)
    assert found.all.bias == pytest.approx(0.125)
    assert found.all.inside == 0.75
    assert found.all.rows == pytest.approx(0.125)
    assert found.all.scored == 0.75
    assert [one.name for one in found.sources] == ["a", "b"]
    assert unseen_scores([], counts).all is None


def test_a_source_that_is_left_out_is_predicted_otherwise():
    """Rows of vTrain, whose constants were chosen on them, and their score without."""
    study = read(published.FOLDER / "vtrain_multi.csv")
    (sides,) = predicted([(study, study.rows[:3])], again=True)
    runs = unseen_runs(study, sides)
    assert {run.source for run in runs} == {source_of(study.family, study.name, study.rows[0])} == {"vtrain"}
    assert all(run.seen != run.unseen for run in runs)
    ships = compare(study.rows[:3], predict)
    assert [one.seen for one in sides] == ships
    seen = [math.log(one.row.step_seconds / one.prediction.step_seconds) for one in ships if one.prediction]
    assert [run.seen for run in runs] == pytest.approx(seen)
