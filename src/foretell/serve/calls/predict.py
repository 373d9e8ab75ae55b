"""How long a step takes under a plan, what memory a rank needs, and what limits it."""

from __future__ import annotations

import msgspec

from foretell.oracle.predict import Prediction, predict
from foretell.oracle.resolve import Resolved
from foretell.oracle.written import StepAnswer, written
from foretell.serve.calls import Call
from foretell.serve.question import Question, read
from foretell.serve.words import spoken


def answer(question: Question) -> StepAnswer:
    """What `foretell predict --json` says."""
    return written(told(read(question)))


def told(asked: Resolved) -> Prediction:
    """A prediction with all that a person should know about it."""
    found = predict(asked.setting, asked.place, asked.request.run)
    return msgspec.structs.replace(
        found,
        notes=tuple(dict.fromkeys(map(spoken, (*asked.notes, *found.notes)))),
        narrower=tuple(map(spoken, found.narrower)),
        bottlenecks=tuple(msgspec.structs.replace(one, relief=spoken(one.relief)) for one in found.bottlenecks),
    )


CALL = Call(Question, StepAnswer, answer)
