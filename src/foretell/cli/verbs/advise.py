"""foretell advise: which technique of distributed training to use, why, and what it costs to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from foretell.cli.progress import Progress
from foretell.cli.worker_options import with_workers
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.virtual.simulate import Contest

EXAMPLE = "foretell advise resnet50 --on 16xv100-16"
MOST = 16
"""Workers that are simulated where nobody says how many: more of them take longer to learn than a person waits."""


RATES = (0.3, 1.0)
"""That are tried for each algorithm."""

SAMPLES = 20_000
"""That are learnt from at most, by all workers: who does not get there with them is no advice."""


@click.command("advise", short_help="Which technique to use on a cluster, and why.")
@click.argument("model")
@click.option("--on", "cluster", metavar="CLUSTER", help="The cluster: 16xh100.")
@click.option("--workers", type=int, metavar="N", help="Workers in virtual time (all ranks, at most 16).")
@click.option("--batch", type=int, metavar="N", default=8, help="Samples of a worker's gradient (8).")
@click.option("--learn", "learns", metavar="MODEL", default="", help="Whose gradients (a small network); squares.")
@click.option("--rate", "rates", metavar="R,R", default="", help="Rates to try; the best counts (0.3,1).")
@click.option("--target", type=float, metavar="LOSS", default=0.0, help="The loss to reach.")
@with_workers
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(model: str, as_json: bool, **options: Any) -> None:
    """Advise on MODEL: techniques of the taxonomy by virtual time to a loss.

    Each technique of its table of choices is simulated with algorithms that stand for it;
    beside them is the fastest plan of the search, for a model that has to be split.
    """
    import msgspec

    from foretell.cli.system_pages import advice_page
    from foretell.cli.verbs.simulate import read_rates
    from foretell.taxonomy.advice import advise
    from foretell.virtual.disturbance import read

    words = ("jitter", "stragglers", "slow", "failures")
    asked = contest(
        model,
        options["cluster"],
        options["workers"],
        rates=read_rates(options["rates"]) if options["rates"] else RATES,
        disturbances=read(*(options[word] for word in words)),
        **{name: options[name] for name in ("learns", "batch", "target", "trainer", "servers")},
    )
    with Progress("advise") as progress:
        found = advise(asked, progress.runs)
    click.echo(msgspec.json.encode(found) if as_json else advice_page(found))


def contest(model: str, on: str | None, workers: int | None, learns: str = "", **more: Any) -> Contest:
    """What is asked of virtual time where only a model and a cluster are named."""
    from foretell.hardware import catalog
    from foretell.taxonomy.advice import learnt
    from foretell.virtual.simulate import Contest

    if on is None:
        raise BadInput("no cluster is given", where="--on", fix=EXAMPLE)
    cluster = catalog.cluster(on)
    count = min(cluster.ranks, MOST) if workers is None else workers
    if count < 2:
        raise BadInput(f"{count} worker: nothing to choose", where="--workers", fix="2 or more, on a larger cluster")
    return Contest(model, cluster, (count,), (), learns=learns or learnt(), samples=SAMPLES, **more)
