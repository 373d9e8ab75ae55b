"""Answers of commands, held to what is documented of them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec

from foretell.cli.answers import TYPES


def documented(form: str, text: str | bytes) -> Any:
    """A command's JSON: each key is a key of its type, and each key that the type promises is there."""
    value = msgspec.json.decode(text, type=TYPES[form])
    answer = json.loads(text)
    assert msgspec.json.decode(msgspec.json.encode(value)) == answer
    jsonschema.validate(answer, msgspec.json.schema(TYPES[form]))
    return answer
