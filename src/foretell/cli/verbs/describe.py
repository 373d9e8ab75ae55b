"""foretell describe: one page about any member of a set."""

from __future__ import annotations

import click

from foretell.errors import BadInput

EXAMPLE = "foretell describe h100, or: foretell describe device h100"


@click.command("describe", short_help="A page about any name, with sources.")
@click.argument("words", nargs=-1, metavar="[KIND] NAME")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, figures with their sources.")
def command(words: tuple[str, ...], as_json: bool) -> None:
    """One page about NAME: what it is, its figures, and where they come from.

    NAME is a device, link, cluster, strategy, policy, schedule, trainer or model.
    It may also be part of a plan, a cluster or a model: dp8:zero3, +bf16, 64xh100,
    llama3-8b:layers=16. KIND is needed if a name is taken twice.
    """
    from foretell.cli.members import page

    if not 1 <= len(words) <= 2:
        raise BadInput("describe what?" if not words else f"{len(words)} words", where="describe", fix=EXAMPLE)
    found = page(words[-1], words[0] if len(words) == 2 else "")
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found.json()))
        return
    click.echo(found.render())
