"""One rank without the others against the same rank among them: what it says, and the memory that it takes."""

from __future__ import annotations

import msgspec
import pytest

from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime import appliers
from foretell.runtime.assignment import Assignment, Rehearsal, Report
from foretell.runtime.launch import Ranks

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=128,seq=32"

PLANS = ("dp4", "dp4:zero1", "dp4:zero3", "tp4", "dp2:zero3 tp2", "pp4 +m4", "dp2 pp2 +m2", "pp2:zb-v +m4")


@pytest.mark.parametrize("plan", PLANS)
def test_a_rank_alone_does_what_it_does_among_others_to_the_byte(ranks: Ranks, plan: str) -> None:
    together = ranks.run(Assignment(model=TINY, plan=plan, batch=8, steps=1))
    for rank in {0, len(together) // 2, len(together) - 1}:
        asked = Rehearsal(rank=rank, cluster="4xcpu")
        (alone,) = ranks.run(Assignment(model=TINY, plan=plan, batch=8, steps=1, rehearsal=asked))
        among = together[rank]
        assert alone.collectives and alone.collectives == among.collectives
        assert alone.place == among.place and alone.rank == rank
        assert alone.resting == among.resting
        assert abs(alone.allocated - among.allocated) <= _on_its_way(alone)


def _on_its_way(report: Report) -> int:
    """Bytes of a message between stages: on either side the last one may be there still when a step is fullest. Of
    collectives nothing is."""
    return max((one.payload for one in report.collectives if one.kind in ("send", "receive")), default=0)


def test_messages_that_take_no_time_are_the_same_messages(ranks: Ranks) -> None:
    asked = Assignment(model=TINY, plan="dp2:zero3 tp2", batch=8, steps=1, rehearsal=Rehearsal(3, "4xcpu"))
    at_once = msgspec.structs.replace(asked, rehearsal=Rehearsal(3, "4xcpu", priced=False))
    (slow,), (fast,) = ranks.run(asked), ranks.run(at_once)
    assert slow.collectives == fast.collectives and slow.allocated == fast.allocated


@pytest.mark.parametrize("plan", ["dp4:zero3", "dp2:zero3 tp2", "dp2:zero3 pp2 +m2"])
def test_weights_that_are_never_whole_take_the_same_memory(ranks: Ranks, plan: str) -> None:
    asked = Assignment(model=TINY, plan=plan, batch=8, steps=1, rehearsal=Rehearsal(1, "4xcpu", priced=False))
    hollow = msgspec.structs.replace(asked, rehearsal=Rehearsal(1, "4xcpu", priced=False, hollow=True))
    (whole,), (shares,) = ranks.run(asked), ranks.run(hollow)
    assert whole.collectives == shares.collectives
    assert (whole.allocated, whole.resting) == (shares.allocated, shares.resting)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules, as they are imported
def test_the_fullest_of_the_ranks_that_divide_experts(ranks: Ranks) -> None:
    """What travels to its experts is what the program says, and it keeps as many rows more; real ranks refuse it."""
    mixture = "mixture:layers=4,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=512,experts=8,seq=32"
    held, kept = list[int](), list[float]()
    for words in ("", " +imbalance1.5"):
        asked = Assignment(model=mixture, plan=f"dp8:zero1,ep4{words}", batch=16, steps=1)
        (alone,) = ranks.run(msgspec.structs.replace(asked, rehearsal=Rehearsal(0, "64xcpu", priced=False)))
        own = expand(lower(asked.setting))
        said = [message for message, _ in own.communications(own.kinds[0]) if message.kind == "all-to-all"]
        travels = {one.payload for one in alone.collectives if one.kind == "all-to-all" and one.payload > COUNTS}
        assert travels and travels == {message.payload for message in said}
        held.append(alone.allocated)
        kept.append(own.stages[0].memory.backward_peak)
        assert bool(list(appliers.refusals(asked.setting))) == bool(words)
    assert held[1] - held[0] == pytest.approx(kept[1] - kept[0], rel=0.05)


COUNTS = 64
"""Bytes of how many rows go to each expert, which travel ahead of them."""


def test_a_world_of_a_thousand_ranks_has_one_here(ranks: Ranks) -> None:
    asked = Rehearsal(rank=1000, cluster="1024xcpu", priced=False)
    (alone,) = ranks.run(Assignment(model=TINY, plan="dp512:zero3 tp2", batch=512, steps=1, rehearsal=asked))
    assert alone.place == {"dp": 500, "tp": 0}
    assert {one.ranks for one in alone.collectives} == {2, 512}
