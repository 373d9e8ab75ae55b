"""foretell list: the names foretell knows."""

from __future__ import annotations

import json
import textwrap

import click

from foretell.model import zoo


@click.command("list", short_help="The names foretell knows.")
@click.argument("what", type=click.Choice(["models"]), default="models")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(what: str, as_json: bool) -> None:
    """Print the names of one kind, a family a line."""
    families: dict[str, list[str]] = {}
    for name, fields in zoo.names().items():
        families.setdefault(type(fields).__module__.rpartition(".")[2], []).append(name)
    if as_json:
        click.echo(json.dumps({what: families}))
        return
    for family, members in families.items():
        line = f"{family}: {', '.join(members)}"
        click.echo(textwrap.fill(line, 80, subsequent_indent="  ", break_on_hyphens=False))
