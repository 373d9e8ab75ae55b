"""Models of the zoo that stand on another's frame, and of whose layers ranks do not take shares yet."""

from __future__ import annotations

from typing import Any

from foretell.model.zoo.jamba import Jamba
from foretell.model.zoo.llava import Llava
from foretell.model.zoo.nemotron_h import NemotronH
from foretell.model.zoo.qwen3_next import Qwen3Next


def undivided(fields: Any) -> str:
    """What does not run in shares; empty where all does."""
    if isinstance(fields, NemotronH | Jamba | Qwen3Next):
        return "scans do"
    if isinstance(fields, Llava):
        return "a tower for images does"
    if getattr(fields, "index_heads", 0):
        return "an index of places does"
    return ""
