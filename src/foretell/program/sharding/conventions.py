"""What a trainer does its own way when it divides layers."""

from __future__ import annotations

from dataclasses import dataclass


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
    scatters_loss   the gradient of the losses is laid into zeros, as large as the logits, before that of log-softmax
    autocast        products run in 16 bits, and the rest in fp32
    casts           each operator makes copies of what it reads in its own type; tensors move in the types they have
    compiled        a compiler makes one copy of a tensor in another type for all that read it, and turns images
    whole_bias      the gradient of a bias that is added to a sum is made from all of the sum's gradient,
                    not from the share that a rank goes on with
    in_place        the gradient of the logits takes the memory that the loss kept of them
    low             bytes of an input of layers' products as it is kept in few bits; 0: as it was read
    block           channels that a processor's library lays together for convolutions; 0: it makes no copies
    """

    each_consumer: bool = False
    gather_again: bool = False
    late_sums: bool = False
    synchronised: bool = False
    gathers_logits: bool = False
    scatters_loss: bool = False
    autocast: bool = False
    casts: bool = False
    compiled: bool = False
    whole_bias: bool = False
    in_place: bool = False
    low: float = 0.0
    block: int = 0

    @property
    def of_bodies(self) -> tuple[bool, bool, bool, bool, bool, float, int]:
        """Those that decide what operators hold, rather than how they are divided."""
        return self.scatters_loss, self.autocast, self.casts, self.compiled, self.in_place, self.low, self.block


USUAL = Conventions()
