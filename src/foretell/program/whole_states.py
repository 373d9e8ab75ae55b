"""States that ranks share out weight by weight: each weight is one rank's, largest first to whoever has least.

So does PyTorch's ZeroRedundancyOptimizer (2.13, torch/distributed/optim/zero_redundancy_optimizer.py,
_partition_parameters): the rank with the table of words has more than its part.
"""

from __future__ import annotations

import functools
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable

from foretell.caches import forgettable
from foretell.program.exchange import Exchanges
from foretell.program.weights import Weight


def fullest_shares(weights: Iterable[tuple[Weight, int]], exchanges: Exchanges) -> dict[tuple[str, ...], float]:
    """The share of all elements that the fullest rank updates, by the axes along which only states lie in shares."""
    sizes: dict[tuple[str, ...], Counter[int]] = defaultdict(Counter)
    for weight, times in weights:
        storage = exchanges.storage(weight)
        if storage.states and not storage.gradients:
            sizes[weight.shared][weight.elements] += times
    ranks = {along: exchanges.ranks(along) for along in sizes}
    return {along: fullest_share(tuple(sorted(own.items())), ranks[along]) for along, own in sizes.items()}


@forgettable
@functools.lru_cache(maxsize=4096)
def fullest_share(sizes: tuple[tuple[int, int], ...], ranks: int) -> float:
    """Of weights of so many elements each, and how many there are of them."""
    loads = [0] * ranks
    for size, count in sorted(sizes, reverse=True):
        for _ in range(count):
            heapq.heapreplace(loads, loads[0] + size)
    return max(loads) / sum(loads)
