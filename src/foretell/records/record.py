"""What every record says about itself, whatever it records."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from foretell.version import __version__

SCHEMA = 1
"""Raised whenever a reader of old records would misread new ones; `upgrade` brings old ones up."""

KINDS = ("prediction", "run", "failed-run", "calibration", "profile", "answer", "stack")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One prediction, run or calibration: who made it, when, of what, and what came out."""

    schema: int = SCHEMA
    kind: str
    created: str  # UTC, ISO 8601
    foretell: str  # version that wrote it
    versions: dict[str, str] = {}  # of everything that may change the numbers
    model: str = ""
    fingerprint: str = ""  # of the graph
    plan: str = ""
    cluster: str = ""
    content: dict[str, Any] = {}  # the observation or the calibration itself, with raw samples

    @property
    def identity(self) -> str:
        """What the file is called: kind, moment, and a digest of the content."""
        return identity(msgspec.json.decode(msgspec.json.encode(self)))


def identity(content: Mapping[str, Any]) -> str:
    """The name of a record that a file has, as it was when it was written: of any schema, before it is brought up."""
    import hashlib

    moment = "".join(c for c in str(content.get("created", "")) if c.isdigit())[:20]
    items = ([msgspec.json.encode(one, order="deterministic") for one in item] for item in content.items())
    digest = hashlib.sha256(b"{" + b",".join(map(b":".join, items)) + b"}").hexdigest()[:12]
    return f"{content.get('kind', '')}-{moment}-{digest}"


def record(kind: str, content: dict[str, Any], **about: Any) -> Record:
    """A record of now, with the versions that are known."""
    if kind not in KINDS:
        raise ValueError(f"a record is one of {KINDS}, not {kind!r}")
    versions = {"python": platform.python_version(), **about.pop("versions", {})}
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    return Record(kind=kind, created=now, foretell=__version__, versions=versions, content=content, **about)
