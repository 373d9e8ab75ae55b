"""Plans drawn at random, legal ones, and what becomes of each when it runs.

python tests/torchrun/drawn_plans.py --count 60 --seed 1        what is refused, by reason, and what fails
python tests/torchrun/drawn_plans.py --count 60 --refusals      without running anything
"""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from equalities import (
    CNN,
    DEEP,
    LENET,
    MIXTURE,
    TIED,
    Trained,
    alone,
    assert_same_collectives,
    assert_same_values,
    assignment,
    trained,
)

from foretell.errors import BadInput
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.tensor import Tensor
from foretell.runtime.launch import Ranks

TOKENS = ("dp", "dp", "tp", "cp", "pp")
IMAGES = ("dp", "dp", "spatial", "filter", "channel", "pp")
FAMILIES = {DEEP: TOKENS, TIED: TOKENS, MIXTURE: TOKENS, CNN: IMAGES, LENET: IMAGES}

FORMS = {
    "dp": ("", "", ":zero1", ":zero2", ":zero3"),
    "tp": ("", ":sp"),
    "cp": (":ring", ":alltoall"),
    "pp": (":gpipe", ":1f1b", ":interleaved", ":zb-h1", ":zb-v", ":dualpipe-v", ":dualpipe"),
    "spatial": ("",),
    "filter": ("",),
    "channel": ("",),
}

POLICIES = (
    "+recompute:block",
    "+recompute:full",
    "+recompute:every2",
    "+recompute:first1",
    "+recompute:nth2",
    "+recompute:attention",
    "+no-overlap",
    "+offload:optimizer",
    "+offload:activations",
    "+lora4",
    "+compiled",
    "+bucket:1MB",
)
WORLDS = ((2,), (2,), (4,), (2, 2), (2, 2), (2, 2))
"""Ranks of the axes of a plan."""


class Drawn(NamedTuple):
    """A model under a legal plan."""

    model: str
    plan: str
    setting: Setting

    @property
    def refusal(self) -> str:
        """Why it does not run; empty if it should."""
        from foretell.runtime import appliers  # what warns on the way, tests would take for an error

        return next((one.why for one in appliers.refusals(self.setting)), "")

    @property
    def talks_as_said(self) -> bool:
        """Whether what travels is the program's to the byte: where it is not, a test of its own pins both sides."""
        plan = self.setting.plan
        words = {axis.word for axis in plan.axes if axis.world > 1}
        data, tensor = plan.axis(Data), plan.axis(Tensor)
        storage = data.storage if data is not None and data.world > 1 else "replicated"
        routed = (data is not None and data.experts > 1) or (tensor is not None and tensor.sequence)
        return not (
            storage in ("zero1", "zero2")
            or (storage == "zero3" and "pp" in words)
            or "spatial" in words
            or (plan.policy(Recompute).rule.together(1) and words & {"tp", "filter", "channel"})
            or (self.model == MIXTURE and routed)
        )

    @property
    def like(self) -> str:
        """The plan of one process that trains alike."""
        return "dp1 +lora4" if "+lora4" in self.plan else "dp1"


def drawn(seed: int) -> Iterator[Drawn]:
    """Legal plans without end."""
    chance = random.Random(seed)
    while True:
        model = chance.choice(list(FAMILIES))
        plan = _plan(chance, model)
        try:
            setting = assignment(model, plan).setting
        except BadInput:
            continue
        yield Drawn(model, plan, setting)


def _plan(chance: random.Random, model: str) -> str:
    sizes = chance.choice(WORLDS)
    words = [*dict.fromkeys(chance.sample(FAMILIES[model], len(sizes)))]
    axes = [f"{word}{size}{_form(chance, word, size, model)}" for word, size in zip(words, sizes, strict=False)]
    policies = chance.sample(POLICIES, chance.choice((0, 0, 1, 1, 2)))
    count = chance.choice((1, 2, 4)) if "pp" not in words else chance.choice((4, 8))
    return " ".join((*axes, *policies, *([f"+m{count}"] if count > 1 else [])))


def _form(chance: random.Random, word: str, size: int, model: str) -> str:
    form = chance.choice(FORMS[word])
    if word == "dp" and model == MIXTURE and chance.random() < 0.7:
        return f"{form},ep{size}" if form else f":ep{size}"
    return form


def checked(ranks: Ranks, one: Drawn) -> Trained:
    """Run it; it must train as one process does, and say to others what the program says."""
    found = trained(ranks, one.model, one.plan)
    assert_same_values(found, alone(ranks, one.model, one.like))
    if one.talks_as_said:
        assert_same_collectives(one.model, one.plan, found.reports)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--refusals", action="store_true")
    asked = parser.parse_args()
    found: dict[str, list[str]] = defaultdict(list)
    with Ranks() as ranks:
        for one, _ in zip(drawn(asked.seed), range(asked.count), strict=False):
            found[_became(ranks, one, asked.refusals)].append(f"{one.model.partition(':')[0][-12:]} {one.plan}")
    for why, plans in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{len(plans):4} {why}")
        if why not in ("runs", "would be tried"):
            print(*(f"         {plan}" for plan in plans[:4]), sep="\n")


def _became(ranks: Ranks, one: Drawn, only_refusals: bool) -> str:
    """What became of a plan, with numbers left out: alike ones are counted together."""
    if one.refusal:
        return "refused: " + re.sub(r"\d+", "N", one.refusal)
    if only_refusals:
        return "would be tried"
    try:
        checked(ranks, one)
    except (AssertionError, BadInput) as problem:
        return "fails: " + " ".join(str(problem).strip().splitlines()[:1])[:250]
    return "runs"


if __name__ == "__main__":
    main()
