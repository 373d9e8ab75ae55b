"""Experts that FSDP2 does not cut: with fewer of them than ranks messages are padded, and the program says so."""

from __future__ import annotations

from collections import Counter

import pytest

from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.text import parse
from foretell.program.expand import expand, notes
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from foretell.program.program import Program
from foretell.runtime.assignment import Assignment, Rehearsal
from foretell.runtime.launch import Ranks

EXPERTS = 4
MIXTURE = f"mixture:layers=4,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=512,experts={EXPERTS},seq=32"


def program(plan: str, ranks: int, trainer: str = "pytorch") -> Program:
    return lower(resolve(Request(model=MIXTURE, plan=parse(plan), batch=ranks, trainer=trainer)).setting)


def traffic(own: ExpandedProgram) -> Counter[str]:
    found: Counter[str] = Counter()
    for message, times in own.communications(own.kinds[0]):
        found[message.kind] += round(message.payload) * times
    return found


@pytest.mark.parametrize(
    ("plan", "world", "padded"), [("dp16:zero3", 16, 16), ("dp4:zero3", 4, 4), ("dp6:zero2", 6, 6)]
)
def test_messages_of_experts_are_those_of_fully_shard(ranks: Ranks, plan: str, world: int, padded: int) -> None:
    asked = Rehearsal(rank=0, cluster="64xcpu", priced=False)
    (alone,) = ranks.run(Assignment(model=MIXTURE, plan=plan, batch=world, steps=1, rehearsal=asked))
    ran: Counter[str] = Counter()
    for one in alone.collectives:
        ran[one.kind] += one.payload * one.count
    assert traffic(expand(program(plan, world))) == ran
    noted = [note for note in notes(program(plan, world)) if "experts in shares" in note]
    assert bool(noted) == (padded > EXPERTS)
    assert all(f"{EXPERTS} experts in shares of {world} ranks" in note and f"for {padded};" in note for note in noted)


@pytest.mark.parametrize(
    ("plan", "trainer", "whole"),
    [
        ("dp16:zero3 +bf16", "torchtitan", True),
        ("dp16:zero3,ep2 +bf16", "torchtitan", False),
        ("dp16:zero3,ep2 +bf16", "pytorch", True),
        ("dp16:zero3 +bf16", "deepspeed", False),
        ("dp16:zero1 +bf16", "pytorch", False),
        ("dp4:zero3,shard4 +bf16", "pytorch", False),
    ],
)
def test_who_pads_experts(plan: str, trainer: str, whole: bool) -> None:
    found = program(plan, 16, trainer)
    assert any("experts in shares" in note for note in notes(found)) == whole
