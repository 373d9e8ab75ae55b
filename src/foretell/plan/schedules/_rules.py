"""Rules that several schedules have."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.refusal import Refusal


def enough_microbatches(name: str, ranks: int, microbatches: int, least: int) -> Iterator[Refusal]:
    """At least so many micro-batches."""
    if microbatches < least:
        why = f"{name} on pp{ranks} needs at least {least} micro-batches to fill, and m{microbatches} is fewer"
        yield Refusal("micro-batches fill the pipeline", why, f"+m{least}, or 1f1b")
