"""What is asked of a method after pre-training, and what of it makes no sense."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from foretell.errors import BadInput
from foretell.oracle.phase import AlignmentMethod
from foretell.oracle.replica import Replica
from foretell.oracle.request import Request
from foretell.oracle.rollout import SLOTS, AnswerLoad

PLACES: Final = ("together", "host", "apart")
"""In turn on the same devices; the same, with what training keeps on the host meanwhile; on devices of their own."""

WHOLE: Final = 64
"""Rows are rounded up to so many tokens, so that ranks which share a sequence have equal parts."""


class AlignmentQuestion(NamedTuple):
    """What is asked, beside the plan that trains."""

    request: Request  # its batch: prompts, or pairs
    method: str
    answers: AnswerLoad | None = None
    models: tuple[tuple[str, str], ...] = ()  # role to another model's name
    reference: bool = False  # asked for where a method can do without
    remembered: bool = False  # the reference's logarithms were taken before
    updates: int = 1  # of a batch of rollouts
    epochs: int = 1  # that these are gone through
    padded: bool = False  # rows as long as the longest; else their tokens one after the other
    replica: Replica | None = None  # that writes; None: the fastest
    slots: int = SLOTS
    place: str = ""  # one of PLACES; empty: the fastest that fits


def check(asked: AlignmentQuestion, how: AlignmentMethod) -> None:
    if how.writes and asked.answers is None:
        what = f"{asked.method} trains on answers that it writes, and none are described"
        raise BadInput(what, where="--lengths", fix="--prompt 512 --answers 8 --lengths 1000,4096")
    if not how.writes and asked.answers is not None:
        raise BadInput(f"{asked.method} writes no answers", where="--lengths", fix="--seq, for a pair's two sequences")
    if asked.place and not how.writes:
        raise BadInput(f"{asked.method} writes no answers", where="--place", fix="without --place")
    if sequences(asked, how) % asked.updates:
        what = f"{sequences(asked, how)} sequences do not go into {asked.updates} updates"
        raise BadInput(what, where="--updates", fix="--updates 1")
    if how.writes and (asked.request.graph is not None or re.search(r"[:,]seq=", asked.request.model)):
        what = f"{asked.request.model} has rows of its own, and answers make others"
        raise BadInput(what, where="MODEL", fix="a model that is named, without seq=")
    known = [phase.role for phase in how.phases]
    for role, _ in asked.models:
        if role not in known:
            raise BadInput(f"{asked.method} asks no {role}", where=f"--{role}", fix=f"without --{role}")


def sequences(asked: AlignmentQuestion, how: AlignmentMethod) -> int:
    """Sequences that are trained on in a step."""
    if asked.answers is not None:
        return asked.answers.count
    if not asked.request.batch:
        raise BadInput("no batch is given", where="--batch", fix="--batch 64, in pairs")
    return how.rows * asked.request.batch


def row_tokens(asked: AlignmentQuestion) -> int:
    """Tokens of a row: in the mean, or of the longest."""
    if asked.answers is None:
        return asked.request.seq  # 0: the model's own
    tokens = asked.answers.longest if asked.padded else asked.answers.prompt + asked.answers.lengths.mean
    return WHOLE * math.ceil(tokens / WHOLE)
