"""What a person should know beside an answer: on standard error, in lines that fit a terminal."""

from __future__ import annotations

from collections.abc import Iterable

import click

from foretell.cli.table import folded
from foretell.secrets import hidden


def tell_notes(notes: Iterable[str]) -> None:
    """Each note as a paragraph; names and paths in it are not broken."""
    for note in notes:
        click.echo(folded(f"note: {hidden(note)}"), err=True)
