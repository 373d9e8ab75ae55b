"""foretell systems: systems of distributed training, listed, filtered and compared; a plan or run classified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from foretell.errors import BadInput

BATCH = 8
"""Samples of each rank, where nobody says how many."""


@click.command("systems", short_help="Systems of distributed training, by the taxonomy's axes.")
@click.argument("names", nargs=-1)
@click.option("--parallelism", metavar="VALUE", help="data, vertical, horizontal, out-of-core.")
@click.option("--optimization", metavar="VALUE", help="central, decentral.")
@click.option("--scheduling", metavar="VALUE", help="synchronous, bounded, soft-bounded, asynchronous.")
@click.option("--exchange", metavar="VALUE", help="all-reduce, scatter-reduce, ad-hoc, ...")
@click.option("--topology", metavar="VALUE", help="replicated, single-server, ring, ...")
@click.option("--on", "cluster", metavar="CLUSTER", help="What they would do there with --model: 16xv100-16.")
@click.option("--model", "trained", metavar="MODEL", help="With --on: what they would train.")
@click.option("--batch", type=int, metavar="N", help="With --on: samples of each rank (8).")
@click.option("--learn", "learns", metavar="MODEL", help="With --on: whose gradients (a small network).")
@click.option("--plan", metavar="TEXT", help="Instead: where a plan lies.")
@click.option("--algorithm", metavar="TEXT", help="Instead: where an algorithm of `foretell simulate` lies.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Instead: where a run lies.")
@click.option("--bytes", "model", metavar="MODEL", help="Instead: what travels for an update of a model.")
@click.option("--axes", is_flag=True, help="Instead: the axes and what their values mean.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    names: tuple[str, ...],
    plan: str | None,
    algorithm: str | None,
    record: Path | None,
    model: str | None,
    axes: bool,
    as_json: bool,
    cluster: str | None,
    trained: str | None,
    batch: int | None,
    learns: str | None,
    **wanted: str | None,
) -> None:
    """List systems, those with values on axes, or compare those with these NAMES.

    What has a preset says how foretell writes it: a plan to predict or run, an algorithm
    to simulate. With --on and --model both are done: what would they do on this cluster?
    """
    import msgspec

    from foretell.cli.system_pages import axes_page, bytes_page, classes_page, compared_page, doings_page, listed_page
    from foretell.taxonomy.systems import categories, doing, matching, system

    instead = {"--plan": plan, "--algorithm": algorithm, "--record": record, "--bytes": model, "--axes": axes or None}
    asked = [option for option, given in instead.items() if given is not None]
    if len(asked) > 1:
        raise BadInput(f"{' and '.join(asked)} are different questions", where=asked[1], fix="one of them")
    if asked and names:
        what = f"{asked[0]} asks about something else than {', '.join(names)}"
        raise BadInput(what, where=asked[0], fix=f"foretell systems {' '.join(names)}, or {asked[0]} without names")
    doings = {"--on": cluster, "--model": trained, "--batch": batch, "--learn": learns}
    _one_question(asked, doings, wanted)
    found: Any
    page: Callable[[Any], str]
    if axes:
        found, page = dict(categories()), axes_page
    elif plan is not None or algorithm is not None or record is not None:
        classes = _classes(plan, algorithm, record)
        found, page = {**classes, "systems": doing(classes)}, classes_page
    elif model is not None:
        found, page = _bytes(model), bytes_page
    else:
        chosen = names or matching({axis: value for axis, value in wanted.items() if value is not None})
        if not chosen:
            raise BadInput("no system has all of these", fix="fewer of them")
        if cluster is not None or trained is not None:
            found, page = _doings(chosen, cluster, trained, batch, learns or ""), doings_page
        else:
            found, page = {name: system(name) for name in chosen}, compared_page if names else listed_page
    click.echo(msgspec.json.encode(found) if as_json else page(found))


def _one_question(asked: Sequence[str], doings: dict[str, Any], wanted: dict[str, str | None]) -> None:
    """Refuse what would be passed over: options of another question."""
    given = [option for option, value in doings.items() if value is not None]
    filters = [f"--{axis}" for axis, value in wanted.items() if value is not None]
    if asked and (given or filters):
        other = (given or filters)[0]
        raise BadInput(f"{asked[0]} and {other} are different questions", where=asked[0], fix="one of them")
    if given and doings["--on"] is None and doings["--model"] is None:
        what = f"{given[0]} needs a model or a cluster"
        raise BadInput(what, where=given[0], fix=f"--model resnet50 --on 16xv100-16 {given[0]} ...")


def _classes(plan: str | None, algorithm: str | None, record: Path | None) -> dict[str, tuple[str, ...]]:
    from foretell.learning.members import composed
    from foretell.plan.text import parse
    from foretell.taxonomy.classify import of_algorithm, of_run, plan_classes

    if plan is not None:
        return plan_classes(parse(plan))
    if record is not None:
        from foretell.cli.named_record import read_named
        from foretell.runtime.comparison import ran

        asked = ran(read_named(record), str(record)).assignment
        return of_run(parse(asked.plan), asked.method)
    return of_algorithm(composed(algorithm or ""))


def _doings(names: Sequence[str], cluster: str | None, model: str | None, batch: int | None, learns: str) -> Any:
    from foretell.cli.progress import Progress
    from foretell.cli.verbs.advise import RATES, contest
    from foretell.taxonomy.would import would

    if cluster is None or model is None:
        where = "--on" if cluster is None else "--model"
        raise BadInput("a model and a cluster belong together", where=where, fix="--model resnet50 --on 16xv100-16")
    asked = contest(model, cluster, None, rates=RATES, learns=learns, batch=BATCH if batch is None else batch)
    with Progress("systems") as progress:
        return would(asked, names, progress.runs)


def _bytes(model: str) -> dict[str, Any]:
    from foretell.taxonomy.updates import travels

    return {"model": model, "updates": travels(model)}
