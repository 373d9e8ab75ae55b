"""The score of sources left out: what takes part in it, and what a source that was never seen takes with it."""

import math

import msgspec
import pytest

from foretell.hardware import catalog, members
from foretell.oracle.predict import predict
from foretell.plan.trainer import CONSTANTS, names, trainer
from foretell.validation import published
from foretell.validation.constants import fitted
from foretell.validation.evaluate import compare
from foretell.validation.in_view import (
    Slot,
    changed,
    cluster_without,
    constants_without,
    in_view,
    own,
    slots_of,
)
from foretell.validation.left_out import candidates, chosen_again, encoded
from foretell.validation.sources import source_of
from foretell.validation.study import read
from foretell.validation.unseen import UnseenRun, unseen_runs, unseen_scores

NO_RUNS = {
    ("fsdp", "attention.kernel"),
    ("fsdp", "attention.peak"),
    ("pytorch", "attention.kernel"),
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


@pytest.mark.parametrize("slot", sorted(in_view()))
def test_candidates_never_saw_the_source(slot: Slot):
    """What is chosen among did not come from the source that is left out; shares of a peak are a grid."""
    for source in in_view()[slot]:
        found = candidates(slot, source)
        if slot.kind == "trainers":
            seen = [name for name in names() if source in in_view().get(Slot("trainers", name, slot.key), ())]
            others = {str(trainer(name).constant(slot.key)) for name in names() if name not in seen}
            assert {str(value) for value in found} <= others


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
    runs = [UnseenRun("s", "a", "t", same, half, True) for _ in range(3)] + [
        UnseenRun("s", "b", "t", same, same, False)
    ]
    found = unseen_scores(runs)
    assert found.all is not None
    assert found.all.unseen == pytest.approx(0.125)
    assert found.all.seen == 0.0
    assert found.all.anchored == pytest.approx(0.0)
    assert found.all.bias == pytest.approx(0.125)
    assert found.all.inside == 0.75
    assert [one.name for one in found.sources] == ["a", "b"]
    assert unseen_scores([]).all is None


def test_a_source_that_is_left_out_is_predicted_otherwise():
    """Rows of vTrain, whose constants were chosen on them, and their score without."""
    study = read(published.FOLDER / "vtrain_multi.csv")
    compared = compare(study.rows[:3], predict)
    runs = unseen_runs(study, compared)
    assert {run.source for run in runs} == {source_of(study.family, study.name, study.rows[0])} == {"vtrain"}
    assert all(run.seen != run.unseen for run in runs)
    seen = [math.log(one.row.step_seconds / one.prediction.step_seconds) for one in compared if one.prediction]
    assert [run.seen for run in runs] == pytest.approx(seen)
