"""Why a plan does not fit: the rule, the numbers, and a way out. A value, never an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.plan.plan import Plan


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule that a plan breaks.

    A rule knows ways out of itself only: plans that do not break it (`mends`), and things to change outside
    the plan (`way_out`). What a person is told (`mending.told`) has no mends any more; its way out names
    the plan that breaks no rule at all.
    """

    rule: str  # a short stable name, by which refusals are counted: "batch divides"
    why: str  # the rule with its numbers: "a batch of 100 is not a multiple of dp8 x m16 = 128"
    way_out: str = ""  # what would work: "--batch 128"
    mends: tuple[Plan, ...] = ()  # the nearest first
    batches: tuple[int, ...] = ()  # of `way_out`: with one of them the plan does not break this rule

    def __str__(self) -> str:
        return f"{self.why} (rule: {self.rule})"


class PlanRefused(BadInput):
    """The refusals of a plan as one message: each rule with its own way out under it."""

    refusals: tuple[Refusal, ...] = ()

    def told(self) -> dict[str, Any]:
        """For programs: the verdict alone, the ways out, and the rules one by one."""
        if not self.refusals:
            return super().told()
        ways = dict.fromkeys(one.way_out for one in self.refusals if one.way_out)
        rules = [msgspec.to_builtins(msgspec.structs.replace(one, mends=(), batches=())) for one in self.refusals]
        verdict = self.what.partition("\n")[0]
        return super().told() | {"what": verdict, "fix": self.fix or "; ".join(ways), "refusals": rules}


def refused(plan: Plan, found: tuple[Refusal, ...]) -> BadInput:
    """The refusals of a plan, to be raised where a person asked for it. A way out of several rules is told once."""
    rules = "a rule is broken" if len(found) == 1 else f"{len(found)} rules are broken"
    lines = [f"{plan} is refused: {rules}"]
    for at, refusal in enumerate(found):
        lines += [f"  rule   {refusal.rule}", f"  why    {refusal.why}"]
        again = any(one.way_out == refusal.way_out for one in found[at + 1 :])
        lines += [f"  try    {refusal.way_out}"] if refusal.way_out and not again else []
    problem = PlanRefused("\n".join(lines))
    problem.refusals = found
    return problem
