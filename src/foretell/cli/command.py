"""The `foretell` command and its verbs. A verb's file is imported only when the verb is used."""

from __future__ import annotations

from typing import Any, Final

import click

from foretell import trust
from foretell.cli.verbs import LEARNING, VERBS
from foretell.errors import ForetellError, near
from foretell.version import __version__

TYPED: Final = "foretell.typed"
"""Where a context has all that was typed."""


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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Code that the person names here may run, and no other; nothing is imported from the current folder."""
        with trust.typed(ctx.meta[TYPED]), trust.importing_nothing_from_here():
            return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = near(args[0], VERBS)
            hint = f"did you mean {close[0]}?" if close else f"verbs: {', '.join(VERBS)}"
            raise ForetellError(f"foretell has no verb {args[0]!r}", fix=hint)
        name, command, rest = super().resolve_command(ctx, args)
        if command is None or ctx.resilient_parsing:  # a shell that completes a line
            return name, command, rest
        from foretell.cli.same_forms import in_own_form

        return name, command, in_own_form(command, rest)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, text in VERBS.items() if name not in LEARNING])
        with formatter.section("Learning, taxonomy and frameworks"):
            formatter.write_dl([(name, VERBS[name]) for name in LEARNING])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="foretell")
def cli() -> None:
    """Predicts how a training run will go before you rent the GPUs, and then proves it.

    Exit codes: 0 an answer, 1 an answer that says no, 2 bad input, 70 a crash
    of foretell, 129, 130 or 143 stopped (SIGHUP, Ctrl-C, SIGTERM).
    """
