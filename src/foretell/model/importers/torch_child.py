# pyright: basic
"""The process in which a user's module is traced: whatever it does, the caller only gets a message.

    python -m foretell.model.importers.torch_child ANSWER SPEC BATCH SEQ

writes the graph, or what went wrong, to the file ANSWER as JSON.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import msgspec

from foretell.errors import ForetellError
from foretell.model.importers.torch_load import Answer

PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def answer(spec: str, batch: int | None, seq: int | None) -> Answer:
    """Trace what the text names."""
    from foretell.model.importers import torch_factory, torch_trace

    try:
        factory, home = torch_factory.find(spec)
        built, mode = torch_factory.build(factory, home, batch, seq, spec)
        return Answer(torch_trace.trace_in(mode, built.module, built.inputs, built.loss, spec))
    except ForetellError as problem:
        return Answer(None, type(problem).__name__, problem.what, problem.where or spec, problem.fix)


def _end_with_parent() -> None:
    """Ask Linux to end this process when the command that waits for it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Write the answer, then leave at once: what else the program started does not matter."""
    _end_with_parent()
    place, spec, batch, seq = arguments
    found = answer(spec, int(batch) if batch else None, int(seq) if seq else None)
    Path(place).write_bytes(msgspec.json.encode(found))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
