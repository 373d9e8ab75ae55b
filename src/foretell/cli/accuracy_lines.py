"""The line on every answer: how far predictions of similar measured runs were."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction
    from foretell.oracle.similar import SimilarAccuracy

NAME = "accuracy"
UNKNOWN = "no measured run is like this one: its error is not known"


def accuracy_line(step: Prediction | None) -> list[tuple[str, str]]:
    """Of one prediction; nothing where nothing is predicted."""
    return [(NAME, accuracy_text(step.accuracy))] if step is not None else []


def accuracy_of_two(first: Prediction, second: Prediction) -> list[tuple[str, str]]:
    """Of two plans: one line where the same runs are like both."""
    if first.accuracy == second.accuracy:
        return accuracy_line(first)
    return [(NAME, f"first: {accuracy_text(first.accuracy)}"), ("", f"second: {accuracy_text(second.accuracy)}")]


def accuracy_by_ranks(known: Mapping[int, SimilarAccuracy]) -> list[tuple[str, str]]:
    """Of the fastest plans of several numbers of ranks, those together that the same runs are like."""
    if not known:
        return [(NAME, UNKNOWN)]
    lines: list[tuple[str, str]] = []
    for accuracy, group in itertools.groupby(sorted(known), key=lambda ranks: known[ranks]):
        ranks = list(group)
        span = f"{ranks[0]:,}" if len(ranks) == 1 else f"{ranks[0]:,} to {ranks[-1]:,}"
        where = f"on {span} GPUs: " if len(known) > 1 else ""
        lines.append(("" if lines else NAME, f"{where}{accuracy_text(accuracy)}"))
    return lines


def accuracy_text(accuracy: SimilarAccuracy | None) -> str:
    return UNKNOWN if accuracy is None else str(accuracy)
