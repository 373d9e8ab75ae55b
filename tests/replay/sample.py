"""The stored sample: a few hundred values that every machine must reproduce to 1e-9, texts and counts exactly.

Other processors and other versions of numpy move last bits: what depends on those (digests) is not in it. Nor is how
things are said: wording may change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "golden" / "replay.json"
PLANS = 250
"""Of the drawn plans every so manyth is in it."""

STUDIES = 300
SEARCHES = ("search/04",)
WORDS = ".words"

PLAYED = 3
"""Simulations, programs and charts of memory that are in it."""


def chosen(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases of the sample, out of all of them."""
    by_question: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        by_question.setdefault(case["ask"], []).append(case)
    return [
        {"id": "study", "ask": "study", "every": STUDIES},
        *by_question["predict"][::PLANS],
        *by_question["refusal"][:: PLANS // 3],
        *(case for case in cases if case["id"] in SEARCHES),
        *(case for ask in ("simulate", "program", "memory") for case in by_question[ask][:PLAYED]),
    ]


def kept(digits: dict[str, Any], digest: str) -> dict[str, Any]:
    """Digits without what hangs on last bits, and without words."""
    return {
        case: {
            kind: {name: value for name, value in own.items() if not str(value).startswith(digest)}
            for kind, own in kinds.items()
            if not kind.endswith(WORDS)
        }
        for case, kinds in digits.items()
    }


def write(digits: dict[str, Any]) -> None:
    """One line a kind: a change of it shows which moved."""
    cases = (
        f"{json.dumps(case)}: {{\n"
        + ",\n".join(f" {json.dumps(kind)}: {json.dumps(own)}" for kind, own in kinds.items())
        + "}"
        for case, kinds in digits.items()
    )
    FILE.write_text("{" + ",\n".join(cases) + "}\n")


def stored() -> dict[str, Any]:
    return json.loads(FILE.read_text())
