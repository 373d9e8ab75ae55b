"""How long a step takes under a plan, what memory a rank needs, and what limits it."""

from __future__ import annotations

import msgspec

from foretell.oracle.predict import Prediction, predict
from foretell.serve.calls import Call
from foretell.serve.question import Asked, Question, read


def answer(question: Question) -> Prediction:
    """What `foretell predict --json` says."""
    return told(read(question))


def told(asked: Asked) -> Prediction:
    """A prediction with all that a person should know about it."""
    found = predict(asked.setting, asked.cluster)
    return msgspec.structs.replace(found, notes=(*asked.notes, *found.notes))


CALL = Call(Question, Prediction, answer)
