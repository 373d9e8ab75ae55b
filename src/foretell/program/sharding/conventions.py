"""What a trainer does its own way when it divides layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretell.plan.dispatch import USUAL as USUAL_DISPATCH
from foretell.plan.rotation import USUAL as USUAL_ROTATION
from foretell.plan.rotation import Rotation


@dataclass(frozen=True, slots=True)
class Conventions:
    """What a trainer does its own way when it divides layers.

    each_consumer   the gradient of a whole tensor that several divided layers read is summed over ranks
                    once for each of them (PyTorch's DTensor), not once for all (fused layers)
    gather_again    a tensor gathered for a layer is not kept but gathered again for its weight gradient
    late_sums       gradients of what layers with split outputs read go back as summands, and are summed where the
                    layer before was gathered
    synchronised    batch norm takes its statistics over all ranks
    gathers_logits  the loss wants all classes of a row
    loss_copies     tensors as large as the logits that the loss's backward pass makes beside their gradient
    autocast        products run in 16 bits, and the rest in fp32
    casts           each operator makes copies of what it reads in its own type; tensors move in the types they have
    compiled        a compiler makes one copy of a tensor in another type for all that read it, and turns images
    whole_bias      the gradient of a bias that is added to a sum is made from all of the sum's gradient,
                    not from the share that a rank goes on with
    in_place        the gradient of the logits takes the memory that the loss kept of them
    low             bytes of an input of layers' products as it is kept in few bits; 0: as it was read
    gates           whether inputs of f(gate) * up are kept so too
    attended        bytes of attention's output as it is kept then; 0: as it is
    sent            bytes of a number of a row that goes to experts in few bits; 0: as it was made
    gathered        bytes of a number of a share of the sequence that tensor ranks gather; 0: as it was made
    dispatch        how rows reach experts, where the axis does not say
    rotation        how keys and values whose positions lie in shares go round
    execution       how kernels run that work on them at each turn
    block           channels that a processor's library lays together for convolutions; 0: it makes no copies
    """

    each_consumer: bool = False
    gather_again: bool = False
    late_sums: bool = False
    synchronised: bool = False
    gathers_logits: bool = False
    loss_copies: int = 0
    autocast: bool = False
    casts: bool = False
    compiled: bool = False
    whole_bias: bool = False
    in_place: bool = False
    low: float = 0.0
    block: int = 0
    gates: bool = False
    attended: float = 0.0
    sent: float = 0.0
    gathered: float = 0.0
    dispatch: str = USUAL_DISPATCH
    rotation: Rotation = USUAL_ROTATION
    execution: str = "eager"

    @property
    def of_bodies(self) -> tuple[Any, ...]:
        """Those that decide what operators hold and send, rather than how they are divided."""
        held = self.loss_copies, self.autocast, self.casts, self.compiled, self.in_place, self.low, self.block
        return *held, self.gates, self.attended, self.sent, self.gathered, self.dispatch, self.rotation, self.execution


USUAL = Conventions()
