"""Running the command: whatever goes wrong is a message and an exit code, never a traceback.

Nothing is imported before `main` runs, so that Ctrl-C during imports is a message too.
"""

from __future__ import annotations

import os
import sys
from typing import Any

NOTHING_FITS = 1
BAD_INPUT = 2
CRASHED = 70  # EX_SOFTWARE of sysexits.h: our fault, and never a person's

TRACEBACK = "FORETELL_TRACEBACK"
"""Set to 1 by those who work on foretell: a crash is Python's own traceback."""


def main() -> None:
    """Run the command line; what a person did wrong ends with 2, what foretell did wrong with 70."""
    try:
        from foretell.cli.stopping import exit_code, stop_signals

        _prepare_streams()
        with stop_signals():
            code = exit_code(answer())
    except KeyboardInterrupt:
        code = _interrupted(None)
    except Exception as problem:
        if os.environ.get(TRACEBACK) == "1":
            raise
        code = _crashed(problem)
    if code:
        sys.exit(code)


def answer() -> int:
    """Answer what `sys.argv` asks, and give the exit code; what it raises is a fault of foretell."""
    import click

    from foretell.cli import mistyped
    from foretell.cli.command import cli
    from foretell.errors import ForetellError
    from foretell.patience import told_to

    told_to(_still_waiting)
    no_arguments: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # before click 8.2 there is none
    try:
        _check_letters(sys.argv[1:])
        code = cli(standalone_mode=False, prog_name="foretell")  # what a verb exits with, if it says so
        sys.stdout.flush()
    except ForetellError as problem:
        return _failed(problem.told(), BAD_INPUT, str(problem))
    except no_arguments as problem:  # `foretell` alone: its help, and no complaint
        print(problem.format_message(), file=sys.stderr)
        return BAD_INPUT
    except click.ClickException as problem:
        if isinstance(problem, click.BadParameter) and (own := mistyped.told(problem)):
            return _failed(own, BAD_INPUT)
        context = problem.ctx if isinstance(problem, click.UsageError) else None
        help_page = f"{context.command_path} --help" if context else ""
        return _failed({"what": problem.format_message(), "fix": help_page}, BAD_INPUT)
    except click.Abort as stop:
        return _interrupted(stop.__cause__)
    except BrokenPipeError:
        _give_up_output()  # the reader of a pipe went away: nothing to report
    except OSError as problem:
        if problem.filename is None:
            _give_up_output()
            return _failed({"what": f"cannot write the answer: {problem.strerror}"}, BAD_INPUT)
        return _failed({"what": str(problem.strerror), "where": str(problem.filename)}, BAD_INPUT)
    else:
        return code if isinstance(code, int) else 0
    return 0


def _still_waiting(what: str, seconds: float) -> None:
    """Say so on standard error; nothing is imported for what does not take long."""
    if what and not _progress:
        from foretell.cli.progress import Progress

        _progress.append(Progress())
    for progress in _progress:
        progress.waits(what, seconds)


_progress: list[Any] = []


def _interrupted(stop: BaseException | None) -> int:
    from foretell.cli.stopping import INTERRUPTED, exit_code, told

    return _failed(told(stop), exit_code(INTERRUPTED))


def _prepare_streams() -> None:
    """A stream that was closed before the start (`>&-`) would give its number to the next file that is opened, and what
    is printed would land in that file. Writing an answer to a closed output fails, as it does for other programs."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest free number, this one
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]: as Python leaves a closed stream
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # letters that a terminal of Latin-1 does not have


def _check_letters(arguments: list[str]) -> None:
    """Refuse bytes that are no UTF-8: no name, plan or answer in JSON could hold them."""
    for at, argument in enumerate(arguments, 1):
        if any("\ud800" <= letter <= "\udfff" for letter in argument):
            from foretell.errors import BadInput
            from foretell.files import shown

            what = f"argument {at} has bytes that are not UTF-8"
            raise BadInput(what, where=shown(argument), fix="UTF-8; a file of such a name under another one")


def _crashed(problem: Exception) -> int:
    """What to say of a fault of ours: a short message here, the rest in a file to attach."""
    from foretell.cli.crash import write_report

    kind = type(problem).__name__
    try:
        report = write_report(problem, sys.argv)
        fix = f"report it with that file attached (it has your command line); {TRACEBACK}=1 shows the traceback"
    except (OSError, MemoryError) as unwritten:
        report = ""
        fix = f"{TRACEBACK}=1 shows the traceback (no file could be written: {unwritten})"
    verb = next((word for word in sys.argv[1:2] if not word.startswith("-")), "")
    what = f"{' '.join(('foretell', verb)).strip()} crashed ({kind}): a fault of foretell, not of yours"
    return _failed({"what": what, "where": report, "fix": fix}, CRASHED)


def _failed(problem: dict[str, Any], code: int, message: str = "") -> int:
    """Say what is wrong to the person on standard error, and on standard output to a program that asked for JSON."""
    from foretell.cli.table import folded_lines
    from foretell.errors import ForetellError
    from foretell.secrets import hidden, hidden_in

    told = hidden_in(ForetellError("").told() | problem)
    text = hidden(message) or str(ForetellError(told["what"], where=told["where"], fix=told["fix"]))
    try:
        print(folded_lines(f"foretell: {text}"), file=sys.stderr, flush=True)
    except OSError:
        _send_nowhere(2)
    if "--json" in sys.argv[1:]:
        import msgspec

        try:
            print(msgspec.json.encode({"error": told}).decode(), flush=True)
        except OSError:
            _give_up_output()
    return code


def _give_up_output() -> None:
    """What could not be written would be tried again at the end: send it nowhere."""
    _send_nowhere(sys.__stdout__.fileno() if sys.__stdout__ else 1)


def _send_nowhere(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
