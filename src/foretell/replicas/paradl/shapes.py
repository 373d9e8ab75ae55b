"""Which row of the paper a plan is."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from foretell.errors import BadInput
from foretell.plan.plan import Plan, axis_text, part_of, policy_text
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.strategy import Strategy


class RowShape(msgspec.Struct, frozen=True):
    """A row and its ranks: groups take different samples, the ranks of a group share them."""

    strategy: str
    groups: int = 1
    ranks: int = 1
    segments: int = 1
    only: str = ""  # layers that are split; empty: as the tool has it

    @property
    def all_ranks(self) -> int:
        return self.groups * self.ranks


SHAPES: Final = "dp1, dp16, spatial4, pp4:gpipe +m8, filter4, channel4, dp256 filter4, dp256 spatial4"
"""A plan of each of the eight rows."""

ROW_OF: Final[dict[tuple[str, ...], str]] = {
    (): "serial",
    ("dp",): "data",
    ("spatial",): "spatial",
    ("pp",): "pipeline",
    ("filter",): "filter",
    ("channel",): "channel",
    ("dp", "filter"): "data+filter",
    ("dp", "spatial"): "data+spatial",
}
"""The words of the axes, outermost first, and the row they make."""

INNER: Final = {"data+filter": "filter", "data+spatial": "spatial"}
"""What the ranks of one group of a hybrid do."""


def asked(plan: Plan) -> RowShape:
    """The row that a plan is; plans of other shapes are refused."""
    axes = [axis for axis in plan.axes if axis != _plain(axis, ranks=1)]
    words = tuple(axis.word for axis in axes)
    if words[::-1] in ROW_OF and words not in ROW_OF:
        turned = " ".join(map(axis_text, reversed(axes)))
        what = "only the order of the axes is wrong: groups that take different samples are outermost in the paper"
        raise BadInput(what, where=str(plan), fix=" ".join([turned, *map(policy_text, plan.policies)]))
    if words not in ROW_OF:
        raise _outside(plan, "its axes are none of these")
    for axis in axes:
        if axis != _plain(axis, axis.ranks):
            raise _outside(plan, f"it knows no {axis_text(axis)}, only {axis_text(_plain(axis, axis.ranks))}")
    for policy in plan.policies:
        if not (isinstance(policy, Microbatches) and words == ("pp",)):
            raise _outside(plan, f"it does not speak of {policy_text(policy)}")
    groups = next((axis.ranks for axis in axes if axis.word == "dp"), 1)
    inner = next((axis for axis in axes if axis.word != "dp"), None)
    part = part_of(inner) if inner else ""
    return RowShape(ROW_OF[words], groups, inner.ranks if inner else 1, plan.microbatches, part)


def written(row: RowShape) -> str:
    """The plan that asks for a row."""
    words = next(words for words, strategy in ROW_OF.items() if strategy == row.strategy)
    if not words:
        return "dp1"
    part = f"[{row.only}]" if row.only else ""
    texts = [f"dp{row.groups}" if word == "dp" else f"{word}{row.ranks}{part}" for word in words]
    return " ".join(texts) if row.strategy != "pipeline" else f"{texts[0]}:gpipe +m{row.segments}"


def _plain(axis: Strategy, ranks: int) -> Strategy:
    """The same strategy as the paper has it: without options, and pipelines flushed."""
    fields: dict[str, Any] = {"ranks": ranks}
    if part_of(axis):
        fields["only"] = part_of(axis)
    if axis.word == "pp":
        fields["schedule"] = "gpipe"
    return type(axis)(**fields)


def _outside(plan: Plan, why: str) -> BadInput:
    return BadInput(f"the paper has no row for this plan: {why}", where=str(plan), fix=SHAPES)
