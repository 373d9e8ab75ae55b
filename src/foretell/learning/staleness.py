"""How stale gradients were: updates that the weights saw between a gradient's start and its being taken in."""

from __future__ import annotations

from collections import Counter


def summary(seen: Counter[int]) -> dict[str, float]:
    """Mean, most, and how many updates: how often. Empty where nobody saw any."""
    if not seen:
        return {}
    mean = sum(updates * times for updates, times in seen.items()) / seen.total()
    return {"mean": mean, "most": float(max(seen))} | {str(updates): float(seen[updates]) for updates in sorted(seen)}
