"""A PyTorch module named on the command line as a graph, traced in a process of its own.

A user's program may abort, hang or need a package that is missing; all of these come back as errors.
This file does not need torch.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from foretell import errors
from foretell.errors import BadInput, ForetellError, MissingExtra, TraceFailed
from foretell.model.graph import Graph, check

LONGEST_SECONDS = 900

_FOREIGN = re.compile(r"/torch/|/importers/torch_|/lib/python3[^/]*/(?!site-packages/)|^<")
"""Files that are not the user's: PyTorch's, ours, Python's own."""


class Answer(msgspec.Struct, omit_defaults=True):
    """What the tracing process has to say: a graph, or an error by its kind."""

    graph: Graph | None = None
    kind: str = ""
    what: str = ""
    where: str = ""
    fix: str = ""


def load(spec: str, batch: int | None = None, seq: int | None = None, *, seconds: float = LONGEST_SECONDS) -> Graph:
    """The graph of what `file.py:factory` or `package.module:factory` builds."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise BadInput(f"{spec!r} does not name a factory", fix="path/to/file.py:factory or package.module:factory")
    if place.endswith(".py") and not Path(place).is_file():
        raise BadInput(f"no such file: {place}", where=spec, fix="path/to/file.py:factory")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("tracing a PyTorch module needs torch", where=spec, fix="pip install 'foretell[torch]'")
    with tempfile.TemporaryDirectory(prefix="foretell-trace-") as folder:
        file = Path(folder) / "answer.json"
        code, output = _run(spec, file, batch, seq, seconds)
        if not file.is_file():
            raise _died(spec, code, output)
        found = msgspec.json.decode(file.read_bytes(), type=Answer)
    if found.graph is None:
        kind = getattr(errors, found.kind, TraceFailed)
        raise kind(found.what, where=found.where, fix=found.fix)
    check(found.graph, spec)
    return found.graph


def _run(spec: str, file: Path, batch: int | None, seq: int | None, seconds: float) -> tuple[int, str]:
    """Run the child in a session of its own, so that what it started ends with it."""
    numbers = [str(number) if number is not None else "" for number in (batch, seq)]
    command = [sys.executable, "-X", "faulthandler", "-m", "foretell.model.importers.torch_child", str(file), spec]
    ours = str(Path(errors.__file__).parents[1])  # the child must find the package that started it
    found = os.environ.get("PYTHONPATH")
    child = subprocess.Popen(
        [*command, *numbers],
        env={**os.environ, "PYTHONPATH": f"{ours}{os.pathsep}{found}" if found else ours},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        what = f"the module was not traced within {seconds:g} seconds"
        raise TraceFailed(what, where=spec, fix="a shorter sequence or fewer layers") from None
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise
    return child.returncode, output


def _died(spec: str, code: int, output: str) -> ForetellError:
    """The error for a process that ended without an answer."""
    _, _, running = output.partition("Current thread")  # faulthandler shows the others too
    frames = re.findall(r'File "(.+?)", line (\d+) in (\S+)', running)
    own = [frame for frame in frames if not _FOREIGN.search(frame[0])]
    where = f"{own[0][0]}:{own[0][1]} in {own[0][2]}" if own else spec
    if code < 0:
        try:
            how = f"by {signal.Signals(-code).name}"
        except ValueError:
            how = f"by signal {-code}"
        fix = "a smaller model or more memory" if -code == signal.SIGKILL else ""
        return TraceFailed(f"the process that traced the module was ended {how}", where=where, fix=fix)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return TraceFailed(f"the process that traced the module ended with {code}", where=where, fix="\n".join(lines[-1:]))
