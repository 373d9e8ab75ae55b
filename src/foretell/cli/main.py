"""Running the command: whatever goes wrong is a message and an exit code, never a traceback.

Nothing is imported before `main` runs, so that Ctrl-C during imports is a message too.
"""

from __future__ import annotations

import os
import sys
from typing import Any

NOTHING_FITS = 1
BAD_INPUT = 2


def main() -> None:
    """Run the command line; whatever a person did wrong becomes a message and exit code 2."""
    try:
        from foretell.cli.stopping import exit_code, stop_signals

        with stop_signals():
            code = exit_code(_run())
    except KeyboardInterrupt:
        code = _interrupted(None)
    if code:
        sys.exit(code)


def _run() -> int:
    import click

    from foretell.cli.command import cli
    from foretell.errors import ForetellError

    no_arguments: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # before click 8.2 there is none
    try:
        code = cli(standalone_mode=False, prog_name="foretell")  # what a verb exits with, if it says so
        sys.stdout.flush()
    except ForetellError as problem:
        return _failed(problem.told(), BAD_INPUT, str(problem))
    except no_arguments as problem:  # `foretell` alone: its help, and no complaint
        print(problem.format_message(), file=sys.stderr)
        return BAD_INPUT
    except click.ClickException as problem:
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


def _interrupted(stop: BaseException | None) -> int:
    from foretell.cli.stopping import INTERRUPTED, exit_code, told

    return _failed(told(stop), exit_code(INTERRUPTED))


def _failed(problem: dict[str, Any], code: int, message: str = "") -> int:
    """Say what is wrong to the person on standard error, and on standard output to a program that asked for JSON."""
    from foretell.cli.table import folded_lines
    from foretell.errors import ForetellError
    from foretell.secrets import hidden, hidden_in

    told = hidden_in(ForetellError("").told() | problem)
    text = hidden(message) or str(ForetellError(told["what"], where=told["where"], fix=told["fix"]))
    print(folded_lines(f"foretell: {text}"), file=sys.stderr)
    if "--json" in sys.argv[1:]:
        import msgspec

        try:
            print(msgspec.json.encode({"error": told}).decode(), flush=True)
        except OSError:
            _give_up_output()
    return code


def _give_up_output() -> None:
    """What could not be written would be tried again at the end: send it nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
