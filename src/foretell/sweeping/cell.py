"""One question of a sweep, and its answer: texts and numbers alone, so that both travel and last."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import msgspec

from foretell.oracle.calibrations import NONE
from foretell.oracle.kept_stacks import path_of
from foretell.version import __version__

OK = "ok"
TOO_LARGE = "nothing fits"
FAILED = "failed"  # the question cannot be answered, now or later
BROKEN = "broken"  # something went wrong on the way: another try may answer it
MISSING = "not reached"  # the sweep ended before

LASTING = (OK, TOO_LARGE, FAILED)
"""Answers that stay the same, however often one asks."""

FILES = (".json", ".net", ".toml", ".py")
"""Endings of files that name a model or a cluster."""

UNHEARD = ("cli", "validation")
"""Parts of foretell that no answer depends on."""


class SweepCell(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One question, as a person would type it."""

    ask: str  # a member of `answers`
    model: str
    cluster: str
    batch: int
    trainer: str = "pytorch"
    optimizer: str = ""
    seq: int = 0  # 0: the model's own
    precision: str = ""
    plan: str = ""
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    fixed: str = ""
    max_memory: str = ""
    steps: int = 0  # to run and measure; 0: as many as usual
    calibration: str = NONE  # a file, or none: which of those kept here was decided when the cell was made
    stack: str = ""  # the name of a kept one

    @functools.cached_property
    def fingerprint(self) -> str:
        """Equal for questions that have the same answer: words, the files they name, and foretell itself."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic"))
        measured = [] if self.calibration == NONE else [Path(self.calibration)]
        if self.stack:
            measured.append(path_of(self.stack))
        for file in (*_files(self.model), *_files(self.cluster), *measured):
            digest.update(file.read_bytes())
        digest.update(_foretell())
        return digest.hexdigest()[:32]


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a cell, flat: a line of the table. Nothing in it depends on when or where it was found."""

    ask: str
    model: str
    cluster: str
    batch: int
    trainer: str
    seq: int
    precision: str
    status: str
    reason: str = ""  # why there is no answer
    plan: str = ""  # the one asked about, or the best
    ranks: int = 0
    step_seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    utilisation: float | None = None
    memory_bytes: float | None = None
    usable_bytes: float | None = None
    evaluated: int = 0  # plans that were priced to find it
    record: str = ""  # of the run, where one was measured


COLUMNS = SweepRow.__struct_fields__


ASKED = ("ask", "model", "cluster", "batch", "trainer", "seq", "precision", "plan")
"""What a line repeats of its cell."""


def row(cell: SweepCell, status: str, **found: Any) -> SweepRow:
    """The line of a cell; what was found stands above what was asked."""
    said: dict[str, Any] = {name: getattr(cell, name) for name in ASKED}
    said |= {"status": status} | found
    return SweepRow(**said)


def _files(text: str) -> list[Path]:
    """The file that a text names, or the configuration of the folder; none for a name."""
    path = Path(text.partition(":")[0] if ".py:" in text else text)
    try:
        found = path / "config.json" if path.is_dir() else path
        return [found] if path.is_dir() or (path.suffix in FILES and path.is_file()) else []
    except OSError:  # longer than a path can be
        return []


@functools.cache
def _foretell() -> bytes:
    """The version, and a digest of the files that answers come from: a change of a constant is another answer."""
    digest = hashlib.sha256(__version__.encode())
    package = Path(__file__).parents[1]
    for file in sorted(package.rglob("*")):
        if file.suffix in (".py", ".toml") and file.relative_to(package).parts[0] not in UNHEARD:
            digest.update(file.read_bytes())
    return digest.digest()
