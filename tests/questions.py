"""Questions of the search, in the few words that laws need."""

from __future__ import annotations

from typing import Any

from foretell.oracle.planning import questions
from foretell.oracle.request import Request, read


def asked(model: str, on: str, batch: int | None, batch_per_rank: int | None = None, **words: Any) -> list[Request]:
    """One question, or one for each number of ranks that split a batch per rank."""
    return questions(read(model=model, on=on, batch=batch, batch_per_rank=batch_per_rank, **words))
