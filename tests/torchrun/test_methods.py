"""Algorithms of virtual time on real processes: the same losses, the same staleness, and the bytes of the program.

Whose gradient comes first differs from run to run. Servers write it down, and virtual time plays it in that order: so
asynchronous runs are compared to the last digit, however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest
import torch
import torch.nn.functional as F
from equalities import LENET, TOLERANCE, Trained, double, half, trained_as

from foretell import modules
from foretell.errors import BadInput
from foretell.hardware.disturbance import read
from foretell.learning.members import composed
from foretell.learning.tempo import FREE, Tempo
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.assignment import Assignment, Collective
from foretell.runtime.expected import expected, whenever
from foretell.runtime.launch import Ranks
from foretell.runtime.measure import measurement
from foretell.runtime.subject import cut
from foretell.runtime.tasks import task
from foretell.trust import trust
from foretell.virtual.again import again, played
from foretell.virtual.foretold import seen, told
from foretell.virtual.problems.run import GradientRun

ASKED = Assignment(model=LENET, plan="", batch=12, steps=3, rate=0.02, optimizer="sgd", weights=True)

PLANS = ("ps2:sync", "ps3:async", "ps3:ssp,s1", "local2:tau2", "local3:tau3", "ring3")


def asked(plan: str, **more: object) -> Assignment:
    return msgspec.structs.replace(ASKED, plan=plan, **more)


def in_double(plan: str, **more: object) -> Assignment:
    return asked(plan, model=double(LENET), **more)


def assert_one_model(found: Trained, ranks: Ranks) -> None:
    """All ranks hand over the same weights, and they are not the first ones."""
    whole = [torch.load(ranks.folder / f"weights-{report.rank}.pt") for report in found.reports]
    for other in whole[1:]:
        for name, weight in whole[0].items():
            torch.testing.assert_close(weight, other[name], rtol=0, atol=0)


@pytest.mark.parametrize("plan", PLANS)
def test_processes_learn_what_virtual_time_says(ranks: Ranks, plan: str) -> None:
    wanted = in_double(plan, optimizer="momentum" if plan == "ps3:async" else "sgd")
    found = trained_as(ranks, wanted)
    observed = measurement(wanted, plan, 12, found.reports)
    both = again(wanted, found.reports, observed.staleness)
    assert both.steps == len(found.losses) == 6
    assert both.apart < TOLERANCE
    assert found.losses[0] != found.losses[-1]
    assert both.staleness == both.measured_staleness
    assert_one_model(found, ranks)
    for report in found.reports:  # what travelled is what was predicted; in double precision, twice the bytes
        assert half(report.collectives) == expected(expand(lower(asked(plan).setting))), f"rank {report.rank}"


def test_ranks_with_data_of_their_own_learn_what_virtual_time_says(ranks: Ranks) -> None:
    """Each has its own mix of classes, and counts in the mean by how much data it has."""
    wanted = in_double("local3:tau2", method="fedavg:tau=2", task="digits", skew=0.2, batch=24)
    found = trained_as(ranks, wanted)
    assert again(wanted, found.reports, {}).apart < TOLERANCE
    assert_one_model(found, ranks)
    even = trained_as(ranks, msgspec.structs.replace(wanted, skew=0.0))
    assert found.losses[0] != even.losses[0]


def _members(ranks: Ranks, count: int) -> list[dict[str, torch.Tensor]]:
    return [torch.load(ranks.folder / f"weights-{rank}.pt") for rank in range(count)]


def _likely(
    model: str, members: list[dict[str, torch.Tensor]], batch: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Mean probabilities of models on what was held out of the digits, with the classes."""
    module = modules.build(model).eval()
    for given in task("digits").held_out(modules.example(model, batch)):
        found = torch.zeros(())
        for weights in members:
            module.load_state_dict(weights)
            with torch.no_grad():
                found = found + module(*given.inputs).softmax(-1)
        yield found / len(members), given.target


def _held_out_loss(model: str, members: list[dict[str, torch.Tensor]], batch: int) -> float:
    losses = [
        (F.nll_loss(likely.log(), target, reduction="sum"), len(target))
        for likely, target in _likely(model, members, batch)
    ]
    return sum(loss.item() for loss, _ in losses) / sum(count for _, count in losses)


DIGITS = "lenet:image=16,dtype=fp64"


def test_the_members_of_an_ensemble_are_processes_that_do_not_talk(ranks: Ranks) -> None:
    """Each begins elsewhere and learns as in virtual time; what is looked at in the end is their mean answer."""
    wanted = asked("gossip3", model=DIGITS, method="ensemble", task="digits", batch=24, validate_every=1)
    found = trained_as(ranks, wanted)
    assert again(wanted, found.reports, {}).apart < TOLERANCE
    assert not any(report.collectives for report in found.reports)
    members = _members(ranks, 3)
    name = next(iter(members[0]))
    assert all(not torch.equal(members[0][name], other[name]) for other in members[1:])
    (check,) = found.reports[0].checks
    together = _held_out_loss(DIGITS, members, 24)
    assert check.loss == pytest.approx(together, abs=1e-9)
    assert together <= sum(_held_out_loss(DIGITS, [one], 24) for one in members) / 3  # by convexity


def test_a_population_of_processes_learns_what_virtual_time_says_and_hands_over_its_best(ranks: Ranks) -> None:
    wanted = asked(
        "gossip3", model=DIGITS, method="population:tau=1", task="digits", batch=24, steps=5, validate_every=1
    )
    found = trained_as(ranks, wanted)
    assert again(wanted, found.reports, {}).apart < TOLERANCE
    assert_one_model(found, ranks)
    (check,) = found.reports[0].checks
    assert check.loss == pytest.approx(_held_out_loss(DIGITS, _members(ranks, 1), 24), abs=1e-9)


def test_a_student_of_processes_learns_its_teachers_answers(ranks: Ranks) -> None:
    """Worker 0 makes all gradients, the others those that they teach; then every rank has the student."""
    wanted = asked("gossip3", model=DIGITS, method="distillation:teach=4", task="digits", batch=24, steps=6)
    found = ranks.run(wanted)
    assert [len(report.losses) for report in found] == [9, 4, 4]
    observed = measurement(wanted, "gossip3", 24, found)
    assert len(observed.losses) == 9
    students = _members(ranks, 3)
    for name, weight in students[0].items():
        assert all(torch.equal(weight, other[name]) for other in students[1:])
    teachers = trained_as(ranks, msgspec.structs.replace(wanted, method="ensemble", steps=1))  # four gradients each
    assert [one.losses for one in teachers.reports] == [one.losses[:4] for one in found]
    members, module = _members(ranks, 3), modules.build(DIGITS)
    torch.manual_seed(3)
    module = modules.build(DIGITS)
    teacher = modules.build(DIGITS).eval()
    batches = task("digits").batches(modules.example(DIGITS, 24), wanted.seed)
    for step in range(9):
        batch = cut(next(batches), 0, 3)
        if step < 4:
            continue
        answers = torch.zeros(())
        for weights in members:
            teacher.load_state_dict(weights)
            with torch.no_grad():
                answers = answers + teacher(*batch.inputs).softmax(-1) / 3
        loss = -(answers * module(*batch.inputs).log_softmax(-1)).sum(-1).mean()
        assert found[0].losses[step] == pytest.approx(loss.item(), abs=TOLERANCE)
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in module.parameters():
                weight -= wanted.rate * weight.grad
    for name, weight in module.state_dict().items():
        torch.testing.assert_close(weight, students[0][name], atol=TOLERANCE, rtol=0)


def test_a_student_that_would_not_begin_is_refused(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="ends after 101 gradients at the least, and each rank makes 6"):
        ranks.run(asked("gossip3", model=DIGITS, method="distillation", task="digits", batch=24))


def test_a_population_without_held_out_data_is_refused(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="this task holds nothing out"):
        ranks.run(asked("gossip3", method="population:tau=1"))


def test_what_is_played_again_is_scored_by_a_persons_own_loss(tmp_path: Path) -> None:
    file = tmp_path / "three_times.py"
    file.write_text("import torch.nn.functional as F\ndef loss(y, target): return 3 * F.cross_entropy(y, target)\n")
    trust(f"{file}:loss")
    plain, own = (GradientRun(asked("ps2:sync", loss=text)) for text in ("", f"{file}:loss"))
    for run in (plain, own):
        run.gradients([run.start(0)], [(1, 0)])
    assert own.losses[1, 0] == pytest.approx(3 * plain.losses[1, 0])


@pytest.mark.parametrize("said", ["easgd:tau=2", "gosgd:p=1"])
def test_processes_whose_letters_cross_learn_what_virtual_time_says(ranks: Ranks, said: str) -> None:
    plan = {"easgd:tau=2": "ps2:async", "gosgd:p=1": "gossip3"}[said]
    wanted = in_double(plan, method=said)
    found = trained_as(ranks, wanted)
    observed = measurement(wanted, plan, 12, found.reports)
    both = again(wanted, found.reports, observed.staleness)
    assert observed.method == both.algorithm == said
    assert both.apart < TOLERANCE
    assert both.staleness == both.measured_staleness
    assert_one_model(found, ranks)
    assert found.losses[0] != found.losses[-1]
    if plan == "gossip3":
        for report in found.reports:
            assert half(report.collectives) == expected(expand(lower(asked(plan).setting)))


def test_gradients_take_the_time_that_was_asked_for(ranks: Ranks) -> None:
    """None is made earlier, however busy the machine is; and staleness lies where the paces that ranks had put it."""
    uneven = Tempo(0.02, jitter=0.3, often=0.1, times=4.0)
    wanted = asked("ps3:async", tempo=uneven, steps=25, disturbance=read(["2:2x"]), weights=False)
    reports = ranks.run(wanted)
    observed = measurement(wanted, "ps3:async", 12, reports)
    assert observed.pace == 0.02 and 0 <= observed.late <= 3 * 28
    for report in reports:
        slow = 2.0 if report.rank == 2 else 1.0
        least = [slow * seconds for seconds in islice(uneven.drawn(report.rank, wanted.seed), 28)]
        assert all(pace > seconds - 1e-4 for pace, seconds in zip(report.paces, least, strict=True))
    assert again(wanted, reports, observed.staleness).staleness == observed.staleness
    free = told(seen(msgspec.structs.replace(wanted, tempo=FREE), reports))
    assert free.by == "taken" and free.distance < max(0.5, 2 * free.noise)


def test_two_servers_have_half_of_the_weights_each(ranks: Ranks) -> None:
    found = trained_as(ranks, in_double("ps2:sync,k2"))
    world, losses = played(in_double("ps2:sync"), composed("sync"), 2)
    assert found.losses == pytest.approx(losses, abs=TOLERANCE, rel=0)
    assert [sum(report.staleness.values()) for report in found.reports] == [12, 12]
    assert world.server.version == 6


@pytest.mark.parametrize("policy", ["1bit", "dgc0.05", "threshold0.05"])
def test_compressed_pushes_are_those_of_virtual_time(ranks: Ranks, policy: str) -> None:
    wanted = asked(f"ps2:async +compress:{policy}")
    found = trained_as(ranks, wanted)
    assert again(wanted, found.reports, {}).apart < 1e-4  # single precision
    for report in found.reports:
        assert whenever(report.collectives) == expected(expand(lower(wanted.setting)))


BUCKETS = {
    "fp16": "fp16",
    "int8": "",
    "ternary": "",
    "qsgd4": "",
    "1bit": "onebit",
    "topk0.05": "topk:share=0.05",
    "dgc0.05": "dgc:share=0.05",
    "threshold0.05": "threshold:share=0.05",
    "factors6": "factors:samples=6",
    "powersgd2": "",
}
"""Policies, and what has the same losses in virtual time: nothing, where ranks draw or sum otherwise."""


@pytest.mark.parametrize("policy", BUCKETS)
def test_buckets_travel_compressed(ranks: Ranks, policy: str) -> None:
    """The bytes are the program's; where nothing is drawn, the losses are those of virtual time."""
    wanted = asked(f"dp2 +compress:{policy}")
    found = trained_as(ranks, wanted)
    said = expected(expand(lower(wanted.setting)))
    for report in found.reports:
        ran = whenever(report.collectives)
        assert (_together(ran) if policy.startswith("powersgd") else ran) == said
    if BUCKETS[policy]:
        _, losses = played(wanted, composed(f"sync+{BUCKETS[policy]}"), 2)
        assert found.losses == pytest.approx(losses, abs=2e-3 if policy == "fp16" else 1e-4)
    assert found.losses[0] != found.losses[-1]


@pytest.mark.parametrize("policy", ["factors8", "powersgd2"])
def test_tables_travel_compressed(ranks: Ranks, policy: str) -> None:
    """The gradient of a table of tokens is a sum over tokens too."""
    model = "llama:layers=1,hidden=32,heads=4,ffn=48,vocab=40,seq=8"
    wanted = asked(f"dp2 +compress:{policy}", model=model, batch=2, weights=False)
    for report in ranks.run(wanted):
        ran = whenever(report.collectives)
        assert (_together(ran) if policy.startswith("powersgd") else ran) == expected(expand(lower(wanted.setting)))


def _together(ran: list[Collective]) -> list[Collective]:
    """PowerSGD sums its left factors before it knows the right ones: two messages with the bytes of one."""
    first = ran[0]
    assert len(ran) == 2
    return [msgspec.structs.replace(first, payload=sum(one.payload for one in ran))]
