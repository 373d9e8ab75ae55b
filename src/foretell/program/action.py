"""What a rank does, one action after the other: compute, communicate, allocate and free, update, copy."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from foretell.model.operator import OperatorPart
from foretell.plan.dispatch import RoutedRows
from foretell.units import Quantity


class TrafficKind(StrEnum):
    """What travels."""

    ACTIVATIONS = "activations"
    GRADIENTS = "gradients"  # of activations
    STATISTICS = "statistics"  # small sums: means, maxima
    WEIGHTS = "weights"
    WEIGHT_GRADIENTS = "weight gradients"


class Phase(StrEnum):
    """When a body runs: in a pass of each micro-batch, or once a step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "step"


class Compute(msgspec.Struct, frozen=True, tag="compute", tag_field="action"):
    """One part of one operator on this rank's share."""

    path: str
    operator: str
    part: str  # forward, input_gradient, weight_gradient
    loops: dict[str, int]  # local sizes
    cost: OperatorPart
    again: bool = False  # a forward part that runs a second time
    density: float = 1.0  # share of an attention's scores that a kernel which skips masked ones computes
    last: bool = False  # a convolution of images that the model itself laid with channels innermost


class Communicate(msgspec.Struct, frozen=True, tag="communicate", tag_field="action"):
    """One collective or message.

    `payload` is what this rank contributes: its share in an all-gather, everything in an all-reduce or
    reduce-scatter, what it holds in an all-to-all, one message in a shift or exchange (of which there
    are `messages`; to or from servers, one for each).
    """

    kind: str
    axes: tuple[str, ...]
    ranks: int
    payload: Quantity  # bytes
    what: str  # a `TrafficKind`, or a policy's own
    path: str
    messages: int = 1
    every: int = 1  # steps from one to the next
    slices: int = 0  # tensors of which the host cuts a slice for each rank, and copies it
    rows: RoutedRows | None = None  # that travel to experts or home, in another way than row by row
    around: Quantity = 0.0  # bytes that kernels read and write to lay out what travels, or to take it in

    @property
    def sent(self) -> Quantity:
        """Bytes that this rank sends, by the algorithm that sends least (Thakur et al. 2005)."""
        n = self.ranks
        share = {
            "all-reduce": 2 * (n - 1) / n,
            "reduce-scatter": (n - 1) / n,
            "all-gather": n - 1,
            "all-to-all": (n - 1) / n,
            "receive": 0,
            "push": 1,
            "pull": 0,
        }.get(self.kind, self.messages)
        return share * self.payload / self.every


class Allocate(msgspec.Struct, frozen=True, tag="allocate", tag_field="action"):
    """Memory that begins to be used."""

    name: str
    bytes: Quantity
    kind: str  # activation, gradient, gathered, message, working


class Free(msgspec.Struct, frozen=True, tag="free", tag_field="action"):
    """Memory that is used no longer. `when`: in every repetition of a layer, or only the first, last or others."""

    name: str
    bytes: Quantity
    when: str = "every"


class Update(msgspec.Struct, frozen=True, tag="update", tag_field="action"):
    """The optimizer's step on the weights whose states this rank holds."""

    rule: str
    parameters: Quantity
    cost: OperatorPart
    on_host: bool = False  # where the states wait in the host's memory
    tensors: int = 0  # weights that it goes through, each a tensor of its own


class Copy(msgspec.Struct, frozen=True, tag="copy", tag_field="action"):
    """Bytes that go to the host's memory or come back."""

    what: str  # optimizer states, activations, weights
    to_host: bool
    bytes: Quantity


Action: TypeAlias = Compute | Communicate | Allocate | Free | Update | Copy
Actions: TypeAlias = tuple[Action, ...]
