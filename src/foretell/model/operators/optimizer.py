"""The optimizer's update: how much it computes, moves and keeps for every parameter.

References: SGD and momentum (Ben-Nun, Hoefler, Table 3), Adam (Kingma, Ba 2015), AdamW
(Loshchilov, Hutter 2019), LARS (You et al. 2017), LAMB (You et al. 2020).
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from foretell.errors import unknown
from foretell.model.operator import Operator, Part, Sizes, Widths


class Rule(NamedTuple):
    """Per parameter: flops, how many state values are kept, and passes for norms of the layer."""

    flops: int
    states: int
    norm_passes: int
    eager_kernels: int  # multi-tensor kernels per group of parameters, unfused (first four: counted on an H200)


RULES: dict[str, Rule] = {
    "sgd": Rule(2, 0, 0, 1),
    "momentum": Rule(4, 1, 0, 3),
    "adam": Rule(12, 2, 0, 7),
    "adamw": Rule(14, 2, 0, 8),
    "lars": Rule(8, 1, 1, 6),
    "lamb": Rule(18, 2, 2, 14),
}


class Update(Operator, frozen=True, tag="update"):
    """w = w - step(g, states): reads weight, gradient and states, writes weight and states.

    The bytes are those of one fused kernel; unfused ones read and write in every pass.
    """

    rule: str

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "w": ("parameter",),
        "g": ("parameter",),
        "s": ("parameter",),
        "y": ("parameter",),
    }

    def forward(self, n: Sizes, width: Widths) -> Part:
        rule, count = RULES[self.rule], n["parameter"]
        state = rule.states * width["s"]
        norms = rule.norm_passes * (width["w"] + width["g"])
        read = count * (width["w"] + width["g"] + state + norms)
        written = count * (width["w"] + state)
        return Part(0, rule.flops * count, read, written, rule.eager_kernels, 1, rule.flops * count, rule.flops)


def update(rule: str) -> Update:
    """The update rule of this name."""
    if rule not in RULES:
        raise unknown("optimizer", rule, RULES)
    return Update(rule)
