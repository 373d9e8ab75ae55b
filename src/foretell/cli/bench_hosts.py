"""`foretell bench` on several hosts: started by torchrun or srun, or with --nnodes as torchrun itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from foretell.cli import several
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.bench.measuring import Starter

Command = TypeVar("Command", bound=Callable[..., Any])


def spread(command: Command) -> Command:
    """The options of several hosts."""
    for option in (
        click.option("--on", "cluster", default="", metavar="CLUSTER", help="What predictions are for (this machine)."),
        click.option("--rendezvous", metavar="HOST:PORT", help="Where nodes meet."),
        click.option("--nnodes", metavar="N", help="Nodes; the same command on each (or by torchrun, or srun)."),
    ):
        command = option(command)
    return command


def seated(options: dict[str, Any]) -> bool:
    """Be a seat that does what seat 0 says, until all is said. Not so where this is seat 0, or where there is none."""
    from foretell.cli import bench_checks
    from foretell.runtime.place import place

    bench_checks.check_hosts(options)
    here = place()
    if here is None and options["nnodes"] is not None:
        _torchrun(options)
    if here is None or here.rank == 0:
        return False
    from foretell.bench import rank_pool

    rank_pool.follow(rank_pool.SeatStore(here))
    return True


def _torchrun(options: dict[str, Any]) -> None:
    from foretell.runtime import launch

    if not options["ranks"]:
        raise BadInput("--nnodes without --ranks", where="--ranks", fix="--ranks 1..8: the most are started")
    ranks = several.numbers(options["ranks"], "--ranks", "ranks", "1,2,4 or 1..8")
    launch.torchrun(max(ranks), options["nnodes"], options["rendezvous"], sys.argv[1:])


def conducting(options: dict[str, Any]) -> Starter:
    """Whoever starts the ranks, here or at all seats."""
    from foretell.bench import rank_pool
    from foretell.hardware import catalog
    from foretell.runtime.place import place

    if options["cluster"]:
        catalog.cluster(options["cluster"])
    return rank_pool.conducting(place(), options["cluster"])
