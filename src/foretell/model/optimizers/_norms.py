"""What LARS and LAMB share: each weight's step is as long as the weight itself is, not as its gradient is.

Norms are of whole weights. Shares of FSDP2 know how to sum theirs over ranks; those of tensor, filter and channel
splits do not, so such plans are refused. Biases and norms, which have one dim, are neither decayed nor scaled (both
papers). Tensors are torch's, which is not imported here.
"""

from __future__ import annotations

from typing import Any


def norm(values: Any) -> Any:
    """The length of a whole weight, also of one that lies in shares."""
    found = values.float().norm()
    return found.full_tensor() if hasattr(found, "full_tensor") else found


def ratio(above: Any, below: Any) -> Any:
    """above / below, and 1 where one of them is 0: a weight that is zero must be able to leave it."""
    sound, one = (above > 0) & (below > 0), above.new_ones(())
    return (above / below.where(sound, one)).where(sound, one)
