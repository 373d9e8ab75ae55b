# pyright: basic
"""The passes of one stage, a backward one whole or in two halves: gradients of inputs first, of weights later.

Torch's own functions split a pass (`stage_backward_input`, `stage_backward_weight`). They look for the weights that a
module has now, so where weights lie in shares these are brought together before each half, and gradients add up on
whole weights; they are summed into shares when the last pass is through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from foretell.runtime.appliers._line import gradient


class InFlight(NamedTuple):
    """A micro-batch whose backward pass has not come yet: what a stage read and what it made."""

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]

    @property
    def trained(self) -> list[torch.Tensor]:
        return [one for one in self.inputs if one.requires_grad]

    @property
    def heads(self) -> list[torch.Tensor]:
        """What it made that has a gradient."""
        return [one for one in self.outputs if one.requires_grad]


class Owed(NamedTuple):
    """What the second half of a backward pass begins with: where the first half met weights, or all if it met none."""

    met: list[dict[str, Any]]
    whole: tuple[InFlight, list[Any]] | None = None


class Passes:
    """Those of one stage. Weights in shares are let go after each pass, or stay whole for a step (`stay`)."""

    def __init__(self, part: nn.Module, stay: bool) -> None:
        self.part, self.stay = part, stay
        self.shards = [one for one in part.modules() if isinstance(one, FSDPModule)]

    def begin(self) -> None:
        """Of a step: nothing is summed before its end."""
        if isinstance(self.part, FSDPModule):
            self.part.set_is_last_backward(False)
            self.part.set_requires_gradient_sync(False)
            self.part.set_reshard_after_backward(not self.stay)

    def forward(self, inputs: list[torch.Tensor]) -> Any:
        return self.part(*inputs)

    def backward(self, flight: InFlight, gradients: list[Any]) -> list[torch.Tensor]:
        """The gradients of what was read."""
        if flight.heads:  # else all weights up to here are frozen
            torch.autograd.backward(flight.heads, gradients)
        return [gradient(one) for one in flight.trained]

    def first_half(self, flight: InFlight, gradients: list[Any]) -> tuple[list[torch.Tensor], Owed]:
        """The gradients of what was read, and what is owed. Where nothing that was read is trained, all of it is."""
        if not flight.trained:
            return [], Owed([], (flight, gradients))
        self._gather()
        given: Any = None if gradients[0] is None else gradients  # a loss has a gradient of one
        _, met = stage_backward_input(flight.heads, given, flight.trained, iter(self._weights()))
        return [gradient(one) for one in flight.trained], Owed(met)

    def second_half(self, owed: Owed) -> None:
        if owed.whole is not None:
            self.backward(*owed.whole)
            return
        self._gather()
        stage_backward_weight(iter(self._weights()), owed.met)
        if not self.stay:
            for shard in self.shards:
                shard.reshard()

    def end(self) -> None:
        """Of a step: sum gradients into shares, as torch's pipelines do."""
        if self.shards:
            SUM_INTO_SHARES(_SummingStage(self.part), 1)

    def _gather(self) -> None:
        for shard in self.shards:
            shard.unshard()

    def _weights(self) -> list[nn.Parameter]:
        return [weight for weight in self.part.parameters() if weight.requires_grad]


class _SummingStage(NamedTuple):
    """All that torch reads of a stage whose gradients it sums."""

    submod: nn.Module

    def scale_grads(self, factor: int) -> None:
        """By nothing: the loss is the mean's already."""


SUM_INTO_SHARES: Any = next(
    getattr(PipelineStage, name) for name in ("perform_reduce_grad", "_post_backward") if hasattr(PipelineStage, name)
)
"""What torch calls it, by its version, that the end of a pipeline's step sums gradients of FSDP2."""


def gather_for_half(part: Any) -> None:
    """Bring weights together before torch's own stage runs half a pass."""
    Passes(part, stay=True)._gather()
