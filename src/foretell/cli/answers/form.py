"""The answer of a command as a type."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

MAYBE: Any = msgspec.UNSET
"""The default of a key that is there only where it has something to say."""


class AnswerForm(NamedTuple):
    """The answer of a command."""

    command: str  # a verb, with the options that change the answer's form
    type: Any
    says: str  # what the answer is, in a few words
