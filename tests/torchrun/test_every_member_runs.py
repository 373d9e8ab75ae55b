"""No strategy, schedule or policy is without a run that is compared value by value, on two ranks and on four."""

from __future__ import annotations

from collections.abc import Iterator

import test_appliers as values
import test_compiled
import test_precision
import test_stash

from foretell.plan.members import policies, strategies
from foretell.plan.policy import Policy
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import Flags, JoinedWords, WordChoice
from foretell.plan.text import parse
from foretell.runtime.methods import choice

COMPARED = (
    *(plan for _, plan in (*values.CASES, *values.LOCAL_NORMS, *values.IN_SHARES)),
    *values.WITH_ADAPTERS,
    *values.EXPERTS_WITH_ADAPTERS,
    *(plan for plan, _ in values.ADAPTERS_OF_SOME),
    *(plan for _, plan, _ in values.SOME_TRAINED),
    *values.SUMMED_FOR_EVERYBODY,
    *values.GATHERED_BY_LAYER,
    *values.NOT_FINISHED,
    *values.KEPT,
    *values.HALVES,
    *values.DIVIDED,
    *values.EXPERTS_AND_SHARES,
    *values.COLUMNS,
    *test_stash.PLANS,
    *test_compiled.PLANS,
    *test_precision.PLANS,
)
"""The plans of tests that compare losses and weights with those of one process."""

AT_LEAST_FOUR = {"dp shard", "dp expert_tensor"}
"""What two ranks cannot do: replicas of shares, and experts that tensor ranks do not cut."""

ELSEWHERE = {
    "compress": "test_methods.py: one process compresses what each rank would",
    "imbalance": "test_rehearsal.py: a rank alone is the fullest; real ones get what routers send",
}

REFUSED = {
    *("precision fp8", "precision mxfp8", "precision nvfp4", "execution graphed", "execution captured"),
    *(
        "precision fp8:block",
        "dp allgather",
        "dp deepep",
        "dp hybridep",
        "dp shares",
        "loss chunks",
        "a2a_overlap a2a-overlap",
    ),
    *("base nf4-dq", "base fp4", "base gptq4", "base awq4", "base int8", "base fp8-weights"),
    *("prompt tokens", "prompt prefix", "train vision", "train projector", "train language"),
    *(
        "recompute layernorm",
        "recompute moe_act",
        "recompute mla_up_proj",
        "recompute swiglu",
    ),  # whose outputs a checkpoint cannot drop
}
"""By name and with a reason, before anything starts."""


def _known(member: type[Strategy] | type[Policy]) -> Iterator[str]:
    """Every form that a strategy or policy can have: each of some words, and each field that has a number."""
    for option in member.syntax:
        words = option.words if isinstance(option, WordChoice | Flags | JoinedWords) else (option.field,)
        yield from (f"{member.word} {word}" for word in words)


def _forms(part: Strategy | Policy) -> Iterator[str]:
    """Those that one has."""
    usual = type(part)(ranks=1) if isinstance(part, Strategy) else type(part)()
    for option in part.syntax:
        value = getattr(part, option.field)
        if isinstance(option, WordChoice | Flags | JoinedWords):
            yield from (f"{part.word} {word}" for word in option.spell(value).split(",") if word)
        elif value != getattr(usual, option.field):
            yield f"{part.word} {option.field}"


def test_every_synchronous_strategy_on_two_ranks_and_on_four() -> None:
    tried = {
        (form, plan.ranks)
        for plan in map(parse, COMPARED)
        for axis in plan.axes
        for form in (axis.word, *_forms(axis))
        if axis.world > 1
    }
    synchronous = [one for one in strategies().values() if choice.method(parse(one.example), "") is None]
    wanted = [form for one in synchronous for form in (one.word, *_known(one)) if form not in REFUSED]
    both = [(form, ranks) for form in wanted for ranks in (2, 4) if ranks == 4 or form not in AT_LEAST_FOUR]
    assert [one for one in both if one not in tried] == []


def test_every_policy() -> None:
    tried = {form for plan in map(parse, COMPARED) for policy in plan.policies for form in _forms(policy)}
    wanted = [form for word, one in policies().items() if word not in ELSEWHERE for form in _known(one)]
    assert [form for form in wanted if form not in tried | REFUSED] == []
