"""Feed-forward by experts: a router scores them for every token, the best few do the work.

The rows of all tokens are sorted by expert and multiplied group by group (no token is dropped),
so the number of rows is tokens times `top_k` whatever the router says.
"""

from __future__ import annotations

from typing import NamedTuple

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim, Dims
from foretell.model.family import Family
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.elementwise import Elementwise, activation, cast, combine
from foretell.model.operators.experts import bounds, gather, grouped_linear, scatter_add, sort, sort_both, top_k
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.reduction import reduce
from foretell.model.operators.softmax import softmax
from foretell.model.totals import totals
from foretell.model.zoo._decoder import gated_feed_forward, one_of

SCORES = ("softmax", "sigmoid", "chosen")
"""Of all experts, each by itself, or a softmax of those that were chosen alone."""


class Routing(NamedTuple):
    """How tokens find their experts.

    Experts may lie in `groups`, of which a token goes to `top_groups` only, those whose `group_best`
    best experts score highest. `corrected` adds a bias per expert to the choice (not to the weights);
    the trainer moves it against the load, so it is state and not a trained parameter. `bias` is a trained
    bias of the router; `before` multiplies a token by its weight before its expert sees it.
    """

    experts: int
    top_k: int
    score: str = "softmax"
    normalized: bool = True  # the weights of a token's experts add up to 1
    scale: float = 1.0  # all weights times this
    groups: int = 1
    top_groups: int = 1
    group_best: int = 1
    corrected: bool = False
    bias: bool = False
    before: bool = False

    def check(self) -> None:
        """Refuse numbers that do not fit together."""
        one_of("score", self.score, SCORES)
        if self.experts % self.groups:
            fix = f"experts={-(-self.experts // self.groups) * self.groups}"
            raise BadInput(f"experts={self.experts} do not lie evenly in groups={self.groups}", fix=fix)
        if self.top_groups > self.groups:
            raise BadInput(f"top_groups={self.top_groups} of groups={self.groups}", fix=f"top_groups={self.groups}")
        reached = self.experts // self.groups * self.top_groups
        if self.top_k > reached:
            what = f"top_k={self.top_k} of the {reached} experts that a token can reach"
            raise BadInput(what, fix=f"top_k={reached} or more experts")
        if self.group_best > self.experts // self.groups:
            raise BadInput(f"group_best={self.group_best} of {self.experts // self.groups} experts in a group")


def active_parameters(
    fields: Family, layers: int, hidden: int, ffn: int, routing: Routing, *, biased: bool = False
) -> int:
    """The parameters that one token meets: all but those of the experts it does not go to."""
    each = 3 * hidden * ffn + (2 * ffn + hidden if biased else 0)
    idle = layers * (routing.experts - routing.top_k) * each
    return totals(fields.graph(type(fields).__name__)).parameters - idle


def expert_feed_forward(g: Builder, x: Value, routing: Routing, ffn: int, *, biased: bool = False) -> Value:
    """x[sample, sequence, hidden] through the experts that its router chooses.

    `biased` ones have biases, and a gate whose values are held below a limit.
    """
    with g.scope("router"):
        weights, chosen = _route(g, x, routing)
    rows: Dims = chosen.dims
    with g.scope("experts"):
        order, numbers = sort_both(g, chosen) if biased else (sort(g, chosen), None)
        source = activation(g, order, "scale")  # the token of each row: its place divided by top_k
        offsets = bounds(g, order, routing.experts)
        y = gather(g, x, source, rows)
        weights = gather(g, weights, order, rows, features=0)
        if routing.before:
            y = broadcast(g, y, weights, "multiply")
        if numbers is None:
            y = _experts(g, y, routing.experts, ffn, offsets)
        else:
            y = _biased_experts(g, y, routing.experts, ffn, (offsets, numbers))
        if not routing.before:
            y = broadcast(g, y, weights, "multiply")
        return scatter_add(g, y, source, x.dims[:-1])


def shared_feed_forward(g: Builder, x: Value, ffn: int, *, gated: bool = False) -> Value:
    """The expert that every token goes to, with a gate of its own where it has one."""
    with g.scope("shared"):
        y = gated_feed_forward(g, x, ffn)
    if not gated:
        return y
    with g.scope("shared_gate"):
        gate = activation(g, linear(g, x, dims(gate=1), bias=False), "sigmoid")
    return broadcast(g, y, gate, "multiply")


def _experts(g: Builder, x: Value, experts: int, ffn: int, offsets: Value) -> Value:
    columns = dims(ffn=ffn)
    with g.scope("gate"):
        gate = grouped_linear(g, x, experts, columns, offsets)
    with g.scope("up"):
        up = grouped_linear(g, x, experts, columns, offsets)
    y = combine(g, activation(g, gate, "silu"), up, "multiply")
    with g.scope("down"):
        return grouped_linear(g, y, experts, x.dims[-1:], offsets)


def _biased_experts(g: Builder, x: Value, experts: int, ffn: int, rows: tuple[Value, Value]) -> Value:
    """down((up + 1) * gate * sigmoid(a * gate)), gate and up within a limit, each with a bias."""
    offsets, numbers = rows

    def layer(name: str, y: Value, columns: Dims) -> Value:
        with g.scope(name):
            y = grouped_linear(g, y, experts, columns, offsets)
            bias = g.parameter("bias", (Dim("expert", experts), *columns))
            return combine(g, y, gather(g, bias, numbers, x.dims[:-1]))

    gate = activation(g, layer("gate", x, dims(ffn=ffn)), "clamp")
    up = activation(g, activation(g, layer("up", x, dims(ffn=ffn)), "clamp"), "scale")
    chance = activation(g, activation(g, gate, "scale"), "sigmoid")
    return layer("down", combine(g, up, combine(g, gate, chance, "multiply"), "multiply"), (x.dims[-1],))


def _route(g: Builder, x: Value, routing: Routing) -> tuple[Value, Value]:
    """The weights and numbers of each token's experts; scores are in fp32."""
    logits = cast(g, linear(g, x, dims(expert=routing.experts), bias=routing.bias), "fp32")
    if routing.score == "chosen":
        chosen = top_k(g, logits._replace(needs_gradient=False), routing.top_k, places=True)
        best = gather(g, logits, chosen, chosen.dims, features=0, whole=True)
        return cast(g, softmax(g, best), x.dtype), chosen
    scores = softmax(g, logits) if routing.score == "softmax" else activation(g, logits, "sigmoid")
    chosen = _choose(g, scores._replace(needs_gradient=False), routing)
    weights = gather(g, scores, chosen, chosen.dims, features=0)
    if routing.normalized:
        weights = combine(g, weights, reduce(g, weights, ("chosen",), "sum"), "divide")
    if routing.scale != 1.0:
        weights = activation(g, weights, "scale")
    return cast(g, weights, x.dtype), chosen


def _choose(g: Builder, scores: Value, routing: Routing) -> Value:
    """The numbers of the best experts, if need be among the best groups; no gradient flows here."""
    if routing.corrected:
        scores = combine(g, scores, g.buffer("correction", scores.dims[-1:], "fp32"))
    if routing.top_groups < routing.groups:
        *rows, expert = scores.dims
        inside = Dim("expert", expert.size // routing.groups)
        grouped = view(g, scores, (*rows, Dim("group", routing.groups), inside))
        best = reduce(g, top_k(g, grouped, routing.group_best), ("chosen",), "sum")
        groups = top_k(g, best, routing.top_groups, places=True)
        loops = {"item": scores.dims}
        scores = g.apply(Elementwise("where"), loops, {"x": scores, "z": groups}, scores.dims)
    return top_k(g, scores, routing.top_k, places=True)
