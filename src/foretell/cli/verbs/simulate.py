"""foretell simulate: how well a model learns under asynchronous, stale, averaged and compressed training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.disturbance_options import disturbed
from foretell.cli.progress import Progress
from foretell.cli.request_options import TRUST
from foretell.cli.stopping import telling
from foretell.cli.worker_options import with_workers
from foretell.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretell.report.page import Page
    from foretell.virtual.simulate import Contest

EXAMPLE = "foretell simulate lenet --on 64xv100-16 --workers 4,16,64"
UNSAVED = ("nothing was saved", "fewer --samples or --algorithms, if time is short")
USUAL = "sync@replicated,async,ssp:s=3,local:tau=8@replicated,easgd,dpsgd,gosgd"


@click.command("simulate", short_help="How well algorithms learn on a cluster, in virtual time.")
@click.argument("model", required=False)
@click.option("--on", "clusters", metavar="CLUSTER", multiple=True, help="Whose times count: 64xh100; several: each.")
@click.option(
    "--workers", metavar="N,N", default="", help="Numbers of workers (4,16, of those that there are ranks for)."
)
@click.option("--algorithms", metavar="LIST", default=USUAL, help="sync, ssp:s=3, async@sharded:k=4+qsgd, ...")
@click.option("--systems", metavar="NAMES", default="", help="As these systems do: distbelief,petuum.")
@click.option("--learn", "learns", metavar="MODEL", default="", help="Whose gradients (MODEL, or a small one).")
@click.option("--task", metavar="NAME", default="digits", help="What it learns (digits).")
@click.option(
    "--skew", type=float, metavar="A", default=0.0, help="Each worker its own mix of classes: 0.3 (0: alike)."
)
@click.option("--batch", type=int, metavar="N", default=8, help="Samples of a worker's gradient (8).")
@click.option("--rate", "rates", metavar="R,R", default="0.5", help="Of a step of all workers; the best counts (0.5).")
@click.option("--momentum", type=float, metavar="M", default=0.0, help="Explicit momentum (0).")
@click.option("--target", type=float, metavar="LOSS", default=0.0, help="The loss to reach (a fifth of the first).")
@click.option("--samples", type=int, metavar="N", default=0, help="To learn from at most (40 times all).")
@click.option("--seed", type=int, metavar="N", default=0, help="Of data, weights and disturbances (0).")
@with_workers
@click.option("--changes", metavar="LIST", default="", help="Who joins and leaves: +3@10,-0@20 (worker, second).")
@disturbed
@click.option("--batches", metavar="LOW..HIGH", help="Instead: steps to the target over batch sizes, noise scale.")
@click.option("--fig14", is_flag=True, help="Instead: delays of an exchange, figure 14 of the taxonomy.")
@click.option(
    "--record",
    "records",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Instead: a run of `foretell run` again; several: their staleness.",
)
@TRUST
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: curves.svg, curves.png.")
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Timeline of the fastest, for Perfetto.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(fig14: bool, batches: str | None, **options: Any) -> None:
    """Compare training algorithms on a cluster by the time to a loss.

    Workers, servers and links take the times that `predict` has for MODEL on the cluster;
    gradients are real, of MODEL or of a smaller one. An algorithm is written with its
    topology and compressor: async@sharded:k=4+topk:share=0.01. `foretell list algorithms`
    (topologies, compressors) has them all.
    """
    if options["plot"] is not None:
        from foretell.report.files import check_drawing

        check_drawing(options["plot"], "--plot")
    _only_contests(fig14, batches, options)
    if fig14:
        _figure(options)
    elif options["records"]:
        _again(options)
    elif options["model"] is None:
        raise BadInput("no model is given", where="MODEL", fix=EXAMPLE)
    elif batches is not None:
        _tradeoff(batches, options)
    else:
        _contest(options)


def _only_contests(fig14: bool, batches: str | None, options: dict[str, Any]) -> None:
    """Nothing goes wrong with a machine in the others."""
    others = (("--fig14", fig14), ("--record", bool(options["records"])), ("--batches", batches is not None))
    for option, asked in others:
        if asked and options["disturbance"]:
            what = "slow ranks, slow links and other jobs are not for it"
            raise BadInput(what, where=option, fix=f"without {option}")
        if asked and len(options["clusters"]) > 1:
            raise BadInput(f"{option} is not compared over clusters", where="--on", fix=f"without {option}")


def _contest(options: dict[str, Any]) -> None:
    from foretell.cli.several import numbers
    from foretell.hardware import catalog
    from foretell.virtual.disturbance import read
    from foretell.virtual.simulate import Contest

    if not options["clusters"]:
        raise BadInput("no cluster is given", where="--on", fix=EXAMPLE)
    same = ("learns", "task", "batch", "momentum", "target", "samples", "seed", "trainer", "servers", "skew")
    words = ("jitter", "stragglers", "slow", "failures", "changes")
    clusters = [catalog.cluster(name) for name in options["clusters"]]
    workers = options["workers"] or _usual(min(one.ranks for one in clusters))
    asked = Contest(
        options["model"],
        clusters[0],
        tuple(numbers(workers, "--workers", "numbers of workers", "4,16,64")),
        tuple(_presets(options["systems"]) or _algorithms(options["algorithms"])),
        rates=read_rates(options["rates"]),
        disturbances=read(*(options[word] for word in words))._replace(machine=options["disturbance"]),
        **{name: options[name] for name in same},
    )
    if len(options["clusters"]) > 1:
        for at, one in enumerate(clusters):
            if one in clusters[:at]:
                raise BadInput(f"{one.text} is there twice", where="--on", fix="each cluster once")
        _several([asked._replace(cluster=one) for one in clusters], options)
    else:
        _one(asked, options)


def _usual(ranks: int) -> str:
    """Numbers of workers, where none are given."""
    return ",".join(str(count) for count in (4, 16) if count <= ranks) or str(ranks)


def _one(asked: Contest, options: dict[str, Any]) -> None:
    from foretell.cli.simulate_pages import simulation_page
    from foretell.report import simulation as report
    from foretell.virtual.simulate import simulate

    with telling(lambda: UNSAVED), Progress("simulate") as progress:
        found = simulate(asked, progress.runs)
    if options["trace"] is not None:
        _trace(asked, found, options["trace"])
    _answer(found, options, lambda: simulation_page(found), lambda: report.simulation_page(found))


def _several(asked: list[Contest], options: dict[str, Any]) -> None:
    """The same on several clusters: who wins where."""
    from foretell.cli.simulate_pages import several_page
    from foretell.virtual.simulate import on_several

    for word in ("plot", "html", "trace"):
        if options[word] is not None:
            raise BadInput("several clusters are several drawings", where=f"--{word}", fix="one --on at a time")
    with telling(lambda: UNSAVED), Progress("simulate") as progress:
        found = on_several(asked, progress.runs)
    _say(found, options, lambda: several_page(found))


def _trace(asked: Any, found: Any, file: Path) -> None:
    import msgspec

    from foretell.files import save
    from foretell.virtual.outcome import trace
    from foretell.virtual.simulate import traced

    text = found.of(max(asked.workers))[0].algorithm
    save(file, msgspec.json.encode(trace(traced(asked, found, text), text)), "trace")


def _figure(options: dict[str, Any]) -> None:
    from foretell.cli.simulate_pages import delays_page
    from foretell.report import simulation as report
    from foretell.virtual.delays import figure14

    found = figure14()
    _answer({"delays": found}, options, lambda: delays_page(found), lambda: report.delays_page(found))


def _again(options: dict[str, Any]) -> None:
    """What real processes did, played once more; of several runs, how stale gradients were."""
    from foretell.cli.named_record import read_named
    from foretell.cli.simulate_pages import again_page, agreement_page
    from foretell.runtime.comparison import reports_of
    from foretell.virtual.again import again
    from foretell.virtual.agreement import agreement

    for word in ("plot", "html"):
        if options[word] is not None:
            raise BadInput("a run again has no curves to draw", where=f"--{word}", fix=f"without --{word}")
    ran = [reports_of(read_named(file), str(file)) for file in options["records"]]
    if len(ran) > 1:
        alike = agreement([(assignment, reports) for assignment, reports, _ in ran])
        _say(alike, options, lambda: agreement_page(alike))
    else:
        found = again(*ran[0])
        _say(found, options, lambda: again_page(found))


def _tradeoff(batches: str, options: dict[str, Any]) -> None:
    from foretell.cli.several import numbers
    from foretell.cli.simulate_pages import batches_page
    from foretell.report import simulation as report
    from foretell.virtual.batches import measured
    from foretell.virtual.simulate import FALL, check_numbers, learnt_by, problem_of

    check_numbers(options["target"], options["samples"], options["seed"])
    model = options["model"]
    problem = problem_of(options["learns"] or learnt_by(model), options["task"])
    target = options["target"] or FALL * problem.judged([problem.start(options["seed"])]).loss
    sizes = numbers(batches, "--batches", "batches", "8..512")
    if len(sizes) < 2:
        what = "one batch size, and a trade-off is between several"
        raise BadInput(what, where="--batches", fix=f"{sizes[0]}..{2 * sizes[0]}, or 8..512")
    if max(sizes) > problem.samples:
        what = f"a batch of {max(sizes):,}, and there are {problem.samples:,} samples to learn from"
        raise BadInput(what, where="--batches", fix=f"8..{min(512, problem.samples)}")
    rates = read_rates(options["rates"])
    with telling(lambda: UNSAVED), Progress("simulate") as progress:
        found = measured(problem, sizes, rates, target, seed=options["seed"], watch=progress.runs)
    _answer(found, options, lambda: batches_page(found, model), lambda: report.batches_page(found))


def _answer(found: Any, options: dict[str, Any], page: Callable[[], str], report: Callable[[], Page]) -> None:
    if options["plot"] is not None:
        from foretell.report.files import save_drawing

        save_drawing(report().charts, options["plot"], "--plot")
    if options["html"] is not None:
        from foretell.report.files import save

        save(report(), options["html"])
    _say(found, options, page)


def _say(found: Any, options: dict[str, Any], page: Callable[[], str]) -> None:
    import msgspec

    click.echo(msgspec.json.encode(found) if options["as_json"] else page())


def _algorithms(text: str) -> list[str]:
    """Names with commas between them; what has a `=` and no name before it is one more option of the last."""
    found: list[str] = []
    for part in filter(None, (part.strip() for part in text.replace(" ", ",").split(","))):
        if found and "=" in part.partition(":")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    if not found:
        raise BadInput("no algorithm is named", where="--algorithms", fix=USUAL)
    return list(dict.fromkeys(found))


def _presets(text: str) -> list[str]:
    """What systems of the taxonomy come to in virtual time."""
    from foretell.taxonomy.systems import system

    found: list[str] = []
    for name in filter(None, text.split(",")):
        preset = system(name.strip()).simulate
        if not preset:
            raise BadInput(f"{name} has nothing to simulate", where="--systems", fix=f"foretell systems {name}")
        found.append(preset)
    return list(dict.fromkeys(found))


def read_rates(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= rate < 1e6 for rate in found):
        raise BadInput(f"{text!r} are no rates", where="--rate", fix="--rate 0.1,0.3,1")
    return found
