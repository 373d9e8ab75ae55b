"""Running the command: whatever goes wrong is a message and an exit code, never a traceback.

Nothing is imported before `main` runs, so that Ctrl-C during imports is a message too.
"""

from __future__ import annotations

import os
import sys

NOTHING_FITS = 1
BAD_INPUT = 2
INTERRUPTED = 130


def main() -> None:
    """Run the command line; whatever a person did wrong becomes a message and exit code 2."""
    try:
        code = _run()
    except KeyboardInterrupt:
        code = _said("interrupted", INTERRUPTED)
    if code:
        sys.exit(code)


def _run() -> int:
    import click

    from foretell.cli.command import cli
    from foretell.errors import ForetellError

    try:
        code = cli(standalone_mode=False)  # what a verb exits with, if it says so
        sys.stdout.flush()
    except ForetellError as problem:
        return _said(str(problem), BAD_INPUT)
    except click.ClickException as problem:
        context = problem.ctx if isinstance(problem, click.UsageError) else None
        help_page = f"\n  try    {context.command_path} --help" if context else ""
        return _said(f"{problem.format_message()}{help_page}", BAD_INPUT)
    except click.Abort:
        return _said("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _give_up_output()  # the reader of a pipe went away: nothing to report
    except OSError as problem:
        _give_up_output()
        if problem.filename is None:
            return _said(f"cannot write the answer: {problem.strerror}", BAD_INPUT)
        return _said(f"{problem.strerror}\n  where  {problem.filename}", BAD_INPUT)
    else:
        return code if isinstance(code, int) else 0
    return 0


def _said(message: str, code: int) -> int:
    from foretell.cli.table import folded

    print(folded(f"foretell: {message}"), file=sys.stderr)
    return code


def _give_up_output() -> None:
    """What could not be written would be tried again at the end: send it nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
