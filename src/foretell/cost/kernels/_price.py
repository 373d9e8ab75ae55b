"""What one part of one operator costs on a device: seconds, and what they are made of."""

from __future__ import annotations

import msgspec

from foretell.units import Quantity, at_least

ORIGINS = ("measured", "carried over", "datasheet")
"""How sure a price is, best first: this device was measured, its architecture or an older one was, nobody was."""


class KernelPrice(msgspec.Struct, frozen=True):
    """Seconds on the device and launches by the host.

    The products and the traffic of their own operands overlap; other kernels of the same part (a sum of
    gradients, a cast) come after them, and each launch adds its least time.
    """

    matrix: Quantity  # seconds of products in matrix units, or of vector arithmetic
    stream: Quantity  # seconds of the traffic beside them
    after: Quantity  # seconds of traffic of other kernels of the part
    launch: Quantity  # seconds that the launches cost on the device
    launches: Quantity  # kernels that the host starts
    provenance: str  # one of ORIGINS

    @property
    def seconds(self) -> Quantity:
        return at_least(self.matrix, self.stream) + self.after + self.launch

    def slower(self, pace: float) -> KernelPrice:
        """The same where all of it takes this many times as long."""
        return msgspec.structs.replace(
            self,
            matrix=self.matrix * pace,
            stream=self.stream * pace,
            after=self.after * pace,
            launch=self.launch * pace,
        )

    @property
    def bound(self) -> Quantity:
        """What takes most of it: "matrix", "memory" or "launch" (for arrays, an array of these words)."""
        memory, matrix = self.stream + self.after, self.matrix
        if isinstance(self.seconds, int | float):
            if self.launch > at_least(memory, matrix):
                return "launch"
            return "matrix" if matrix >= memory else "memory"
        import numpy

        busy = numpy.where(matrix >= memory, "matrix", "memory")
        return numpy.where(self.launch > at_least(memory, matrix), "launch", busy)
