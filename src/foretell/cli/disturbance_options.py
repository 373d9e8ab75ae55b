"""What goes wrong, as options: the same words for what is made to happen and for what is reckoned with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from foretell.hardware.disturbance import Disturbance, read

_OPTIONS = (
    click.option("--slow-rank", "slow_ranks", multiple=True, metavar="RANK:FACTOR", help="A rank that is slow: 1:2x."),
    click.option("--slow-link", "slow_links", multiple=True, metavar="A-B:FACTOR", help="A link that is slow: 0-1:4x."),
    click.option("--traffic", multiple=True, metavar="A-B:RATE", help="Another job sends from A to B: 0-1:500Mbit."),
)


def disturbed(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb these options; it gets them as one `Disturbance`."""

    @functools.wraps(verb)
    def called(*given: Any, **options: Any) -> Any:
        words = (options.pop(name) for name in ("slow_ranks", "slow_links", "traffic"))
        return verb(*given, disturbance=read(*words), **options)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def typed(found: Disturbance) -> list[str]:
    """The options that stand for a disturbance, as they would be typed."""
    words = [("--slow-rank", f"{one.rank}:{one.times!r}x") for one in found.ranks]
    words += [("--slow-link", f"{one.ends[0]}-{one.ends[1]}:{one.times!r}x") for one in found.links]
    words += [("--traffic", f"{one.source}-{one.target}:{one.rate!r} B/s") for one in found.traffic]
    return [word for pair in words for word in pair]
