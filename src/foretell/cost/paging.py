"""What managed memory moves where a rank needs more than its device has (cudaMallocManaged; CUDA Programming Guide,
unified memory: what is touched and not there comes over the link, and what was not touched for longest makes room).

A step writes what it keeps in the forward pass and reads it in the opposite order in the backward pass. So all that is
beyond the device has to leave it once and to come back once, by whatever rule the driver chooses. The link carries no
more than its rate, and while a page is on its way the kernel that wants it stands. More moves where the driver writes
out pages that nobody will read again, which it cannot know: this is the least.
"""

from __future__ import annotations

from foretell.cost.price import PricedProgram

WAYS = 2


def paging_seconds(plan: PricedProgram, beyond: float) -> float:
    """Least seconds of a step that go by moving so many bytes beyond the device out and back; 0 where memory is not
    the driver's to move."""
    if beyond <= 0 or not plan.program.trainer.memory.managed:
        return 0.0
    return WAYS * beyond / plan.prices.host_bandwidth
