"""What a person should know beside an answer: on standard error, in lines that fit a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import click

from foretell.cli.table import WIDTH


def tell_notes(notes: Iterable[str]) -> None:
    """Each note as a paragraph; names and paths in it are not broken."""
    for note in notes:
        text = textwrap.fill(
            f"note: {note}", WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )
        click.echo(text, err=True)
