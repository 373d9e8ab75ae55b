"""Layers of Mamba-2: one product in, a short convolution, a scan, a gated norm, one product out."""

from __future__ import annotations

from typing import NamedTuple

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import split, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.operators.scan import scan, short_convolution


class StateSpace(NamedTuple):
    """`heads` of `head_dim` features, in `groups` that share keys and queries of `state` features."""

    heads: int
    head_dim: int
    state: int
    groups: int
    taps: int
    chunk: int

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: values, keys and queries."""
        return self.inner + 2 * self.groups * self.state

    def check(self) -> None:
        """Refuse heads that do not lie evenly in groups."""
        if self.heads % self.groups:
            near = -(-self.heads // self.groups) * self.groups
            raise BadInput(f"{self.heads} heads do not lie evenly in groups={self.groups}", fix=f"{near} heads")


def state_space(g: Builder, x: Value, sizes: StateSpace) -> Value:
    """What a state space layer makes of x[sample, sequence, hidden]."""
    hidden = x.dims[-1:]
    with g.scope("input"):
        both = linear(g, x, dims(feature=sizes.inner + sizes.convolved + sizes.heads), bias=False)
    gate, mixed, dt = split(g, both, "feature", (sizes.inner, sizes.convolved, sizes.heads))
    with g.scope("convolution"):
        mixed = activation(g, short_convolution(g, mixed, sizes.taps), "silu")
    keys = sizes.groups * sizes.state
    value, key, query = split(g, mixed, "feature", (sizes.inner, keys, keys))
    sample, sequence, _ = value.dims
    group, share = dims(group=sizes.groups, share=sizes.heads // sizes.groups)
    value = view(g, value, (sample, sequence, group, share, *dims(head_dim=sizes.head_dim)))
    dt = view(g, dt, (sample, sequence, group, share))
    key, query = (view(g, part, (sample, sequence, group, *dims(state=sizes.state))) for part in (key, query))
    with g.scope("scan"):
        y = scan(g, value, dt, key, query, chunk=sizes.chunk)
    y = view(g, y, (sample, sequence, *dims(feature=sizes.inner)))
    y = combine(g, y, activation(g, gate, "silu"), "multiply")
    with g.scope("norm"):
        y = _grouped_norm(g, y, sizes.groups)
    with g.scope("output"):
        return linear(g, y, hidden, bias=False)


def _grouped_norm(g: Builder, x: Value, groups: int) -> Value:
    """A norm over the features of each group."""
    if groups == 1:
        return rms_norm(g, x)
    *rows, feature = x.dims
    parts = view(g, x, (*rows, *dims(group=groups, member=feature.size // groups)))
    whole = view(g, rms_norm(g, parts, affine=False), x.dims)
    return broadcast(g, whole, g.parameter("weight", (feature,)), "multiply", weight=True)
