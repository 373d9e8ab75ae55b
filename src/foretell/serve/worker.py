"""A process that answers calls, one at a time: `python -m foretell.serve.worker`.

It reads tasks from its standard input and writes replies to its standard output, each a frame: four bytes of length,
then MessagePack. It ends when its input ends, so it never outlives the server; the server ends it when an answer takes
too long, and interrupts it (SIGINT) when a search is to say what it found so far.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from foretell.errors import ForetellError
from foretell.processes import questions_and_answers
from foretell.serve import calls
from foretell.serve.problem import Problem, problem_of

MOST_BYTES: Final = 6 * 1024**3
"""Of memory that a worker may take: a question that needs more is refused, and the machine stays usable."""

WARM: Final = "--warm"

WARMING: Final = b'{"model":"llama3-8b","cluster":"64xh100","batch":64,"plan":"dp8:zero1 tp8:sp +m8 +bf16"}'
"""A question that is answered before anybody asks: the page's first one, so that nobody waits for imports."""

COLLECTED: Final = (20_000, 20, 50)
"""How much is made between two looks for what nobody needs. Models that are kept are large, and a look takes long."""


class WorkerTask(msgspec.Struct, frozen=True):
    """A call with its body, as JSON that was checked."""

    call: str
    body: bytes


class Reply(msgspec.Struct, frozen=True):
    """Part of an answer: how far it is, the answer, or what is wrong."""

    kind: str  # ready, progress, answer, problem
    status: int
    body: bytes
    media: str = calls.JSON
    held: int = 0  # bytes of memory that the worker has then

    @property
    def last(self) -> bool:
        """Whether nothing comes after it."""
        return self.kind != "progress"


def framed(value: WorkerTask | Reply) -> bytes:
    """A value with its length before it."""
    content = msgspec.msgpack.encode(value)
    return len(content).to_bytes(4, "big") + content


def main() -> None:
    """Answer until there is nobody who asks."""
    tasks, replies = questions_and_answers()
    _limit_memory()
    _settle()
    if WARM in sys.argv:
        answered(WorkerTask("view", WARMING), replies=None)
        _settle()
    gc.collect()
    gc.freeze()  # what is there now stays, and need not be looked through
    gc.set_threshold(*COLLECTED)
    _write(replies, Reply("ready", 200, b""))
    while (task := _next(tasks)) is not None:
        reply = answered(task, replies)
        _settle()
        _write(replies, msgspec.structs.replace(reply, held=_held()))


def answered(task: WorkerTask, replies: BinaryIO | None) -> Reply:
    """The last reply to a task; what is said before goes to `replies`."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        call = calls.call(task.call)
        body: Any = msgspec.json.decode(task.body, type=call.body)
        found = call.answer(body, functools.partial(_tell, replies)) if call.long else call.answer(body)
        written = found.encode() if call.media != calls.JSON else msgspec.json.encode(found)
        return Reply("answer", 200, written, call.media)
    except ForetellError as problem:
        return _problem(422, problem_of(problem))
    except KeyboardInterrupt:
        return _problem(422, Problem("it was interrupted before there was an answer"))
    except (MemoryError, OverflowError, RecursionError) as problem:
        what = f"the question is too large to be answered here ({type(problem).__name__})"
        return _problem(422, Problem(what, fix="a smaller model, batch or number of micro-batches"))
    except Exception:
        traceback.print_exc()
        return _problem(500, Problem("foretell made a mistake; the server's terminal shows where"))


def _problem(status: int, problem: Problem) -> Reply:
    return Reply("problem", status, msgspec.json.encode(problem))


def _tell(replies: BinaryIO | None, sofar: Any) -> None:
    if replies is not None:
        _write(replies, Reply("progress", 200, msgspec.json.encode(sofar)))


def _settle() -> None:
    """Between tasks an interruption that comes too late means nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    except (ImportError, ValueError, OSError):  # not every system has such limits
        return


def _held() -> int:
    """Bytes of memory of this process; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _next(tasks: BinaryIO) -> WorkerTask | None:
    head = tasks.read(4)
    if len(head) < 4:
        return None
    return msgspec.msgpack.decode(tasks.read(int.from_bytes(head, "big")), type=WorkerTask)


def _write(replies: BinaryIO, reply: Reply) -> None:
    try:
        replies.write(framed(reply))
        replies.flush()
    except BrokenPipeError:  # the server is gone
        os._exit(0)


if __name__ == "__main__":
    main()
