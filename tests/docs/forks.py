"""The command in forks of one process that has imported all of it: as much a process as one that is started anew.

    python -m docs.forks      arguments (a JSON list) on every line of standard input

A fork has the exit code, the output and the working folder of a command, and none of another's caches.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from foretell.processes import ChildProcess, answer_lines, end_with_parent

IMPORTED = ("numba", "numpy", "foretell.cli.command", "foretell.oracle.search", "foretell.oracle.predict")
"""What most commands import; the verbs are imported too."""

LONGEST_SECONDS = 300.0


class Forks:
    """with Forks() as forks: ended = forks.run(["predict", ...], folder)"""

    def __enter__(self) -> Forks:
        here = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        variables = {"PYTHONPATH": here.rstrip(os.pathsep), "FORETELL_PROGRESS": "none", "FORETELL_SECONDS": "0"}
        self._child = ChildProcess([sys.executable, "-m", "docs.forks"], variables)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def run(self, arguments: list[str], folder: Path, apart: bool = False) -> Ended:
        """What came of a command; errors stand among what it printed, as in a terminal, or `apart`."""
        question = json.dumps({"arguments": arguments, "folder": str(folder), "apart": apart})
        return Ended(**json.loads(self._child.ask(question.encode() + b"\n", LONGEST_SECONDS)))


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    printed: str
    errors: str  # nothing, where they are among what it printed


def answered(line: bytes) -> bytes:
    question = json.loads(line)
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            _command(printed.fileno(), errors.fileno(), **question)
        _, status = os.waitpid(child, 0)
        texts = [_read(printed), _read(errors)]
    return json.dumps(Ended(os.waitstatus_to_exitcode(status), *texts)._asdict()).encode()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _command(printed: int, errors: int, arguments: list[str], folder: str, apart: bool) -> NoReturn:
    """Be the command, from its first line to its exit."""
    code = 1
    try:
        end_with_parent()
        os.chdir(folder)
        os.dup2(printed, 1)
        os.dup2(errors if apart else printed, 2)
        sys.argv = ["foretell", *arguments]
        from foretell.cli import main

        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()  # as Python does; `os._exit` leaves out the server's own end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    end_with_parent()
    for name in IMPORTED:
        importlib.import_module(name)
    from foretell.cli.verbs import VERBS

    for verb in VERBS:
        importlib.import_module(f"foretell.cli.verbs.{verb}")
    answer_lines(answered)
