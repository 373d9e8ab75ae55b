"""foretell systems: systems of distributed training, listed, filtered and compared; a plan or run classified."""

from __future__ import annotations

import click

from foretell.errors import BadInput


@click.command("systems", short_help="Systems of distributed training, by the taxonomy's axes.")
@click.argument("names", nargs=-1)
@click.option("--parallelism", metavar="VALUE", help="data, vertical, horizontal, out-of-core.")
@click.option("--optimization", metavar="VALUE", help="central, decentral.")
@click.option("--scheduling", metavar="VALUE", help="synchronous, bounded, soft-bounded, asynchronous.")
@click.option("--exchange", metavar="VALUE", help="all-reduce, scatter-reduce, ad-hoc, ...")
@click.option("--topology", metavar="VALUE", help="replicated, single-server, ring, ...")
@click.option("--plan", metavar="TEXT", help="Instead: where a plan lies.")
@click.option("--algorithm", metavar="TEXT", help="Instead: where an algorithm of `foretell simulate` lies.")
@click.option("--axes", is_flag=True, help="Instead: the axes and what their values mean.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    names: tuple[str, ...], plan: str | None, algorithm: str | None, axes: bool, as_json: bool, **wanted: str | None
) -> None:
    """List systems, those with values on axes, or compare those with these NAMES.

    What has a preset says how foretell writes it: a plan to predict or run, an algorithm
    to simulate.
    """
    import msgspec

    from foretell.cli.system_pages import axes_page, classes_page, compared_page, listed_page
    from foretell.taxonomy.systems import categories, matching, system

    if axes:
        found, page = dict(categories()), axes_page
    elif plan is not None or algorithm is not None:
        found, page = _classes(plan, algorithm), classes_page
    else:
        chosen = names or matching({axis: value for axis, value in wanted.items() if value is not None})
        if not chosen:
            raise BadInput("no system has all of these", fix="fewer of them")
        found, page = {name: system(name) for name in chosen}, compared_page if names else listed_page
    click.echo(msgspec.json.encode(found) if as_json else page(found))


def _classes(plan: str | None, algorithm: str | None) -> dict[str, tuple[str, ...]]:
    from foretell.learning.members import composed
    from foretell.plan.text import parse
    from foretell.taxonomy.classify import plan_classes, run_classes

    if plan is not None:
        return plan_classes(parse(plan))
    made = composed(algorithm or "")

    def name(of: object) -> str:
        return type(of).__module__.rpartition(".")[2]

    return run_classes(name(made.algorithm), name(made.topology), name(made.compressor) if made.compressor else "none")
