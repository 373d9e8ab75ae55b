"""What `foretell predict --oracle paper` prints: the oracle paper's own projection, for one plan or for all."""

from __future__ import annotations

import click
import msgspec

from foretell.cli.table import WIDTH, fit, folded, table
from foretell.errors import BadInput
from foretell.model.zoo._layer_file import LayerFile
from foretell.oracle.request import Request
from foretell.plan.text import parse
from foretell.replicas.paradl import release as releases
from foretell.replicas.paradl.answer import accuracy, answer, fits, interval, others
from foretell.replicas.paradl.limits import limit, refusals
from foretell.replicas.paradl.predict import at, checked, layer_file, left_out, on_device, project, question
from foretell.replicas.paradl.projection import Projection, ProjectionQuestion
from foretell.replicas.paradl.release import Release
from foretell.replicas.paradl.shapes import RowShape, asked, written

EXAMPLE = "foretell predict vgg16-paradl --oracle paper --plan dp16 --batch 512"


def answer_paper(request: Request, release_name: str | None, ranks: int | None, gamma: float, as_json: bool) -> None:
    """Ask the paper's oracle for one plan, or for every strategy on so many ranks."""
    batch, cluster = request.batch or None, request.cluster
    plan = str(request.plan) if request.plan is not None else None
    if batch is None:
        raise BadInput("no batch is given", fix=EXAMPLE)
    if (plan is None) is (ranks is None):
        raise BadInput("one of --plan and --ranks is needed", fix=f"{EXAMPLE}; or --ranks 64 for every strategy")
    if not 0 < gamma <= 10:
        raise BadInput(f"{gamma:g} is no reuse factor", where="--gamma", fix="1, or 0.6: memory is 60 % of all layers'")
    file = layer_file(request.model)
    if cluster is None or cluster.text == "abci":
        release = releases.release(releases.DEFAULT if release_name is None else release_name)
        release = msgspec.structs.replace(release, gamma=gamma)
    elif release_name in (None, "table3"):
        release = releases.on_cluster(cluster, gamma)
        file = on_device(file, request, batch, asked(request.plan).all_ranks if request.plan else ranks or 1)
    else:
        what = f"release {release_name} has the constants of abci, not of {cluster.text}"
        raise BadInput(what, where="--release", fix="--release table3, or --on abci")
    if request.plan is not None:
        click.echo(_one(request.model, file, str(request.plan), batch, release, as_json))
    elif ranks is not None:
        click.echo(_all(request.model, file, ranks, batch, release, as_json))


def _one(model: str, file: LayerFile, plan_text: str, batch: int, release: Release, as_json: bool) -> str | bytes:
    """A plan."""
    row = asked(parse(plan_text))
    q = question(file, row, batch, release)
    projection = checked(row, q)
    if as_json:
        return msgspec.json.encode(answer(model, file, row, q, projection))
    elsewhere = ", ".join(
        f"{name} {_digits(other['epoch_seconds'], 5)} s" for name, other in others(file, row, q).items()
    )
    title = f"{fit(model, WIDTH // 2)}, {written(row)}, batch {batch}"
    return _page(title, q, projection, elsewhere)


def _page(title: str, q: ProjectionQuestion, projection: Projection, elsewhere: str) -> str:

    platform, step = q.release.platform, projection.a_step
    parts = [("computation", "", projection.computation)]
    parts += [(term.name, term.axis, term.seconds) for term in projection.terms]
    parts += [("all", "", projection.seconds)]
    rows = [[name, axis, _digits(seconds), _digits(step(seconds) * 1e3)] for name, axis, seconds in parts]
    most = limit(projection.strategy, q)
    close = accuracy(projection.strategy)
    low, high = (_digits(seconds * 1e3, 4) for seconds in interval(projection))
    verdict = "fits" if fits(projection, q) else "does not fit"
    minutes = projection.cost // projection.ranks
    facts = [
        ("measured", f"{low} to {high} ms a step, by the paper's mean accuracy of {close:.1%}"),
        ("memory a rank", f"{_digits(projection.memory / 1e9, 4)} GB of {platform.memory / 1e9:g} GB: {verdict}"),
        ("", f"it would fit with {projection.most_samples:,.2f} samples a group"),
        ("ranks at most", f"{most.ranks:,}: {most.rule}"),
        ("cost", f"{projection.cost:,} rank-minutes, {projection.ranks:,} ranks for {minutes:,} min"),
        *([("other releases", f"an epoch in {elsewhere}")] if elsewhere else []),
    ]
    head = table(["seconds of", "axis", "an epoch, s", "a step, ms"], rows, left=(0, 1))
    lines = [folded(f"{name:<16}{text}", 16) for name, text in facts]
    shown = f"{title}\nthe paper's oracle: {projection.strategy}"
    stages = [f"stage {at}: {s.first} to {s.last}, {s.seconds * 1e3:.4g} ms" for at, s in enumerate(projection.stages)]
    return "\n".join([shown, "", head, "", *lines, *stages, _used(projection.strategy, q)])


def _used(strategy: str, q: ProjectionQuestion) -> str:
    """Constants and the oddities of a row, in one line that is folded."""
    quirks = ", ".join(q.release.quirks(strategy))
    reused = f"; gamma {q.release.gamma:g}" if q.release.gamma != 1 else ""
    odd = f"; oddities: {quirks}" if quirks else ""
    return folded(f"release {q.release.name}, {q.release.source}; {q.release.platform.told}{reused}{odd}")


def _all(model: str, file: LayerFile, ranks: int, batch: int, release: Release, as_json: bool) -> str | bytes:
    """Every strategy of the paper on so many ranks, the fastest that fits first."""
    if not 1 < ranks <= 10**6:
        raise BadInput(f"{ranks} ranks", fix="--ranks 2 to 1,000,000, or --plan dp1 for one")
    answered: list[tuple[RowShape, ProjectionQuestion, Projection]] = []
    refused: dict[str, str] = {}
    for row in at(ranks, release.platform.node):
        q = question(file, row, batch, release)
        why = next((str(refusal) for refusal in refusals(row.strategy, q)), "")
        if why:
            refused[written(row)] = why
        else:
            answered.append((row, q, project(row.strategy, q)))
    missing = left_out(ranks, release.platform.node)
    answered.sort(key=lambda one: (not fits(one[2], one[1]), one[2].seconds))
    if as_json:
        answers = [answer(model, file, row, q, projection) for row, q, projection in answered]
        return msgspec.json.encode(
            {"model": model, "ranks": ranks, "batch": batch, "rows": answers, "refused": refused | missing}
        )
    rows = [
        [
            written(row),
            _digits(found.computation, 5),
            _digits(found.communication, 5),
            _digits(found.a_step(found.seconds) * 1e3, 5),
            _digits(found.memory / 1e9, 4),
            "yes" if fits(found, q) else "no",
            f"{found.cost:,}",
        ]
        for row, q, found in answered
    ]
    header = ["plan", "compute, s", "communicate, s", "step, ms", "memory, GB", "fits", "cost"]
    lines = [f"{plan}: refused, {why}" for plan, why in refused.items()]
    lines += [f"{', '.join(missing)}: left out, {why}" for why in set(missing.values())]
    below = [folded(line) for line in lines]
    return "\n".join(
        [f"{model} on {ranks} ranks, batch {batch}", "", table(header, rows), *below, _used("", answered[0][1])]
    )


def _digits(value: float, most: int = 6) -> str:
    """A number to so many digits, never as a power of ten when it is large."""
    return f"{value:,.{most}g}" if value < 10**most else f"{value:,.0f}"
