"""What holds a framework back: each cause taken out of the description alone, and how much faster a step is then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from foretell.plan.trainer import Trainer, trainer
from foretell.replicas.survey.predicted import SurveyAnswer, SurveyCase, asked, described, uneven

LEAST: Final = 1.03
"""Times as fast without it from which a cause is worth a word."""

MIXED: Final = "amp_fp16"

Change: TypeAlias = Callable[[Trainer], Trainer]


class Cause(NamedTuple):
    """One cause."""

    name: str
    factor: float  # how many times as long a step takes because of it
    alone: float  # the same on one GPU: what is in both does not show in a speed-up

    @property
    def lost(self) -> float:
        """What it takes from the speed-up over one GPU: 2 halves it."""
        return self.factor / self.alone


def _faster_sends(one: Trainer) -> Trainer:
    return msgspec.structs.replace(one, pipeline=msgspec.structs.replace(one.pipeline, sends=0.0))


def _half_logits(one: Trainer) -> Trainer:
    return msgspec.structs.replace(one, fusion=msgspec.structs.replace(one.fusion, vocabulary="training"))


def _one_kernel(one: Trainer) -> Trainer:
    return msgspec.structs.replace(one, attention=msgspec.structs.replace(one.attention, layer_passes=0.0))


CHANGES: Final[dict[str, Change]] = {
    "Gloo through host memory": _faster_sends,
    "logits in full precision": _half_logits,
    "GELU in eight kernels": _one_kernel,
}
"""Causes that are constants of a trainer, and the trainer without them."""


def causes(case: SurveyCase) -> tuple[Cause, ...]:
    """The causes of a case, the one that costs most first; none where it is refused."""
    alone = SurveyCase(case.curve, 1)
    if asked(case).prediction is None or asked(alone).prediction is None:
        return ()
    at_one = dict(_factors(alone))
    found = [Cause(name, factor, at_one.get(name, 1.0)) for name, factor in _factors(case)]
    return tuple(sorted((one for one in found if one.factor >= LEAST), key=lambda one: -one.factor))


def _factors(case: SurveyCase) -> Iterator[tuple[str, float]]:
    own = asked(case)
    assert own.prediction is not None
    parts, step = own.prediction.breakdown, own.prediction.step_seconds
    by = described(case)
    if own.plan.endswith(("fp32", "tf32")):
        anything = msgspec.structs.replace(by, legal=msgspec.structs.replace(by.legal, precisions=("any",)))
        yield "no mixed precision", _times(own, asked(case, precision=MIXED, by=anything))
    for name, change in CHANGES.items():
        if change(by) != by:
            yield name, _times(own, asked(case, by=change(by)))
    if case.framework.interpreter:
        yield "one interpreter for all stages", _times(own, asked(case, by=trainer(case.framework.trainer)))
    if case.gpus == 1 and own.prediction.microbatches > 1:
        yield "micro-batches one after the other", _times(own, asked(case, microbatches=1))
    shares = {
        "imbalance of the stages": uneven(own.prediction),
        "exposed communication": sum(seconds for name, seconds in parts.items() if name.startswith("exposed")) / step,
        "recomputation": parts.get("recompute", 0.0) / step,
        "waiting for the host": parts.get("host", 0.0) / step,
    }
    shares["bubble of the pipeline"] = max(0.0, parts.get("bubble", 0.0) / step - shares["imbalance of the stages"])
    for name, share in shares.items():
        yield name, 1 / (1 - min(share, 0.99))


def _times(own: SurveyAnswer, other: SurveyAnswer) -> float:
    """How many times as long as the other one, for each sample."""
    if own.prediction is None or other.prediction is None:
        return 1.0
    return other.prediction.samples_per_second / own.prediction.samples_per_second
