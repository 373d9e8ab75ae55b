# pyright: basic
"""Prompts and prefixes: they are predicted, and nothing here runs them."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.policies.prompt import Prompt
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 11


def refusals(part: Prompt, setting: Setting) -> Iterator[tuple[str, str]]:
    if part != Prompt():
        yield "prompts are predicted, not run", "+lora4, +train:embeddings"


def apply(part: Prompt, subject: Subject) -> None:
    pass
