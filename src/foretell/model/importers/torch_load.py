"""A PyTorch module named on the command line as a graph, traced in a process of its own.

A user's program may abort, hang or need a package that is missing; all of these come back as errors.
This file does not need torch.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from foretell import errors, trust
from foretell.errors import BadInput, ForetellError, MissingExtra, TraceFailed
from foretell.model.graph import Graph, check
from foretell.patience import waiting_for
from foretell.processes import ChildProcess, ForkedProcess, ProcessEnded, RankFailed, python

LONGEST_SECONDS = 900

SOON = 0.5
"""Seconds after which whoever waits is told so, and again."""

_FOREIGN = re.compile(r"/torch/|/importers/torch_|/lib/python3[^/]*/(?!site-packages/)|^<")
"""Files that are not the user's: PyTorch's, ours, Python's own."""


class TraceRequest(msgspec.Struct):
    """What the tracing process is asked."""

    spec: str
    batch: int | None
    seq: int | None


class TraceAnswer(msgspec.Struct, omit_defaults=True):
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
    trust.check(spec)
    if place.endswith(".py") and not Path(place).is_file():
        raise BadInput(f"no such file: {place}", where=spec, fix="path/to/file.py:factory")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("tracing a PyTorch module needs torch", where=spec, fix="pip install 'foretell[torch]'")
    graph = traced(spec, batch, seq, seconds=seconds)
    check(graph, spec)
    return graph


def traced(spec: str, batch: int | None = None, seq: int | None = None, *, seconds: float = LONGEST_SECONDS) -> Graph:
    """The graph of what a text names, as the tracing process made it."""
    found = _asked(TraceRequest(spec, batch, seq), seconds)
    if found.graph is None:
        kind = getattr(errors, found.kind, TraceFailed)
        raise kind(found.what, where=found.where, fix=found.fix)
    return found.graph


_forked: list[Callable[[bytes], bytes]] = []


def trace_in_forks(answered: Callable[[bytes], bytes]) -> None:
    """From now on a fork of this process answers, which has torch already and no threads that a fork would miss."""
    _forked.append(answered)


def _asked(question: TraceRequest, seconds: float) -> TraceAnswer:
    """What the tracing process says; it and all that it started are ended then."""
    return _asked_fork(question, seconds) if _forked else _asked_child(question, seconds)


def _asked_fork(question: TraceRequest, seconds: float) -> TraceAnswer:
    fork = ForkedProcess(functools.partial(_forked[-1], msgspec.json.encode(question)))
    try:
        if not fork.answers.poll(seconds):
            raise _late(question, seconds)
        return msgspec.json.decode(fork.answer(0), type=TraceAnswer)
    except RankFailed as problem:
        what = "the process that traced the module ended without an answer"
        raise TraceFailed(what, where=question.spec, fix=problem.trace.strip()) from None
    finally:
        fork.end()


def _asked_child(question: TraceRequest, seconds: float) -> TraceAnswer:
    command = python("-X", "faulthandler", "-m", "foretell.model.importers.torch_child")
    with ChildProcess(command, keep_errors=True) as child, waiting_for(f"tracing {shown_name(question.spec)}") as still:
        try:
            child.tell(msgspec.json.encode(question) + b"\n")
            return msgspec.json.decode(_heard(child, seconds, still), type=TraceAnswer)
        except TimeoutError:
            raise _late(question, seconds) from None
        except ProcessEnded as problem:
            raise _died(question.spec, problem.code, problem.said) from None


def _heard(child: ChildProcess, seconds: float, still: Callable[[], None]) -> bytes:
    """The answer; whoever waits for it is told now and then that it is not there yet."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            return child.hear(min(left, SOON))
        except TimeoutError:
            still()
    raise TimeoutError


def shown_name(spec: str) -> str:
    """What is traced, in words: a file of transformers' configurations by its folder."""
    head, _, file = spec.partition("::")
    path = Path(file.partition(":")[2])
    return f"{path.parent.name or path.name} ({head}' own class)" if file else spec


def _late(question: TraceRequest, seconds: float) -> TraceFailed:
    what = f"the module was not traced within {seconds:g} seconds"
    return TraceFailed(what, where=question.spec, fix="a shorter sequence or fewer layers")


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
