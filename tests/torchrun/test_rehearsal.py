"""One rank without the others against the same rank among them: what it says, and the memory that it takes."""

from __future__ import annotations

import msgspec
import pytest

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


def test_a_world_of_a_thousand_ranks_has_one_here(ranks: Ranks) -> None:
    asked = Rehearsal(rank=1000, cluster="1024xcpu", priced=False)
    (alone,) = ranks.run(Assignment(model=TINY, plan="dp512:zero3 tp2", batch=512, steps=1, rehearsal=asked))
    assert alone.place == {"dp": 500, "tp": 0}
    assert {one.ranks for one in alone.collectives} == {2, 512}
