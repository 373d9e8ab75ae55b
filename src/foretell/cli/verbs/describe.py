"""foretell describe: one page about any member of a set."""

from __future__ import annotations

import click

from foretell.errors import BadInput

EXAMPLE = "foretell describe h100, or: foretell describe device h100, or: foretell describe mfu"


@click.command("describe", short_help="A page about any name, with sources.")
@click.argument("words", nargs=-1, metavar="[KIND] NAME")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, figures with their sources.")
def command(words: tuple[str, ...], as_json: bool) -> None:
    """One page about NAME: what it is, its figures, and where they come from.

    NAME is a device, link, cluster, strategy, policy, schedule, trainer or model,
    or a word of an answer: mfu, bubble, exposed tp, usable memory. It may also be
    a text that means one: dp8:zero3, +bf16, 64xh100, llama3-8b:layers=16. KIND is
    needed where two sets have the same name.
    """
    from foretell.cli.members import KINDS, page

    if not words:
        raise BadInput("describe what?", where="describe", fix=EXAMPLE)
    kind = words[0] if len(words) > 1 and words[0] in KINDS else ""
    found = page(" ".join(words[1:] if kind else words), kind)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found.json()))
        return
    click.echo(found.render())
