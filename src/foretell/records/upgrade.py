"""Old records read by new code: one function per step, from each schema to the next.

To change the schema: raise `record.SCHEMA` to n and add `UPGRADES[n - 1]`, a function from the
old dictionary to the new one. Files on disk are never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretell.errors import BadInput
from foretell.records.record import SCHEMA

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def upgrade(
    content: dict[str, Any],
    where: str,
    steps: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = UPGRADES,
    newest: int = SCHEMA,
) -> dict[str, Any]:
    """The same record under the newest schema; a newer one than ours is refused politely."""
    schema = content.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise BadInput(f"not a record: its schema is {schema!r}", where=where, fix="a file written by foretell")
    if schema > newest:
        what = f"this record has schema {schema}; this foretell reads up to {newest}"
        raise BadInput(what, where=where, fix="a newer foretell: pip install --upgrade foretell")
    while schema < newest:
        if schema not in steps:
            raise BadInput(f"records of schema {schema} can no longer be read", where=where)
        content = {**steps[schema](content), "schema": schema + 1}
        schema += 1
    return content
