"""The `foretell` command. A verb's file is imported only when the verb is used."""

from __future__ import annotations

import sys
from typing import Any

import click

from foretell.cli.verbs import VERBS
from foretell.errors import ForetellError, near
from foretell.version import __version__

BAD_INPUT = 2


class Verbs(click.Group):
    """Verbs in the order of the walk; help lists them without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        import importlib

        command: click.Command = importlib.import_module(f"foretell.cli.verbs.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = near(args[0], VERBS)
            hint = f"did you mean {close[0]}?" if close else f"verbs: {', '.join(VERBS)}"
            raise ForetellError(f"foretell has no verb {args[0]!r}", fix=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="foretell")
def cli() -> None:
    """Tells how a training run will go before you rent the GPUs, and then proves it."""


def main() -> None:
    """Run the command line; whatever a person did wrong becomes a message and exit code 2."""
    try:
        cli(standalone_mode=False)
    except ForetellError as problem:
        click.echo(f"foretell: {problem}", err=True)
        sys.exit(BAD_INPUT)
    except click.ClickException as problem:
        problem.show()
        sys.exit(BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        click.echo("foretell: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe went away: nothing to report
        sys.exit(0)
