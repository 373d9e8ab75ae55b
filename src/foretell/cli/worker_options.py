"""Options about workers in virtual time: their software, their servers, and what disturbs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = (
    click.option("--trainer", metavar="NAME", default="pytorch", help="The training framework (pytorch)."),
    click.option(
        "--servers", metavar="WHERE", default="beside", help="On workers' ranks (beside), or hosts of their own."
    ),
    click.option("--jitter", type=float, metavar="S", default=0.0, help="Spread of the times of gradients: 0.2."),
    click.option("--stragglers", metavar="PxF", default="", help="A share that takes F times as long: 0.1x5."),
    click.option("--slow", metavar="NxF", default="", help="Workers that are always slow: 2x3."),
    click.option("--failures", metavar="S/S", default="", help="Seconds between a worker's, and to come back: 600/30."),
)


def with_workers(command: Command) -> Command:
    """The options, in their order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
