"""foretell predict: how long a step takes and how much memory a rank needs under a plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from foretell.cli.accuracy_lines import accuracy_line
from foretell.cli.disturbance_options import disturbed
from foretell.cli.main import NOTHING_FITS
from foretell.cli.memory_pages import moments_table, stages_table, tensors_table
from foretell.cli.mixed_pages import only_of_one_kind
from foretell.cli.notes import tell_notes
from foretell.cli.parts import largest_first, parts_table
from foretell.cli.rates import carbon_grams, carbon_lines, energy_lines, gpus, shown_breakdown, shown_memory, step_lines
from foretell.cli.request_options import FORWARD, MEASURED, ONE_PLAN, asks, under_plan
from foretell.cli.table import WIDTH, fit, folded, table
from foretell.cli.training_options import HOUR, run_lines, trained
from foretell.errors import BadInput
from foretell.oracle.part_names import part_name
from foretell.units import show_bytes, show_of, show_percent, show_rate, show_seconds

if TYPE_CHECKING:
    from foretell.hardware.disturbance import Disturbance
    from foretell.oracle.anchored import AnchorFinding
    from foretell.oracle.changes import PlanChange
    from foretell.oracle.energy import StepEnergy
    from foretell.oracle.predict import Prediction
    from foretell.oracle.request import Request
    from foretell.oracle.resolve import Resolved
    from foretell.oracle.training import TrainingRun
    from foretell.timeline.peak_breakdown import AliveTensors

EXAMPLE = "foretell predict llama3-8b --on 64xh100 --plan 'dp8:zero3 tp8:sp +bf16' --batch 64"

SHOWN = 5
"""Changes that are shown on the page."""

SMALLEST = 1e-6
"""Share of a step below which a part is rounding, not time."""


@click.command("predict", short_help="Step time, throughput, MFU and memory of a plan.")
@asks(*ONE_PLAN, FORWARD, *MEASURED)
@trained("price", "input_rate")
@disturbed
@click.option("--memory", is_flag=True, help="Also the largest tensors at the peak, all stages, and one over time.")
@click.option(
    "--trace", type=click.Path(dir_okay=False), metavar="FILE", help="Write a timeline for Perfetto (.json, .json.gz)."
)
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@click.option("--keep", metavar="FILE", help="Keep the prediction, for `foretell check`.")
@click.option(
    "--oracle",
    type=click.Choice(["foretell", "paper"]),
    default="foretell",
    help="Our model, or that of the oracle paper.",
)
@click.option("--release", metavar="NAME", help="With --oracle paper: 2020, 2021, source, table3 (2020).")
@click.option("--ranks", type=int, metavar="N", help="With --oracle paper: every strategy on N ranks.")
@click.option("--gamma", type=float, metavar="G", help="With --oracle paper: its memory reuse factor (1).")
@click.option("--energy", is_flag=True, help="Joules of a step and watts of a GPU, too.")
@click.option("--carbon", type=float, metavar="N", help="What they emit, at so many grams of CO2 a kWh: 380.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    request: Request,
    run: TrainingRun,
    disturbance: Disturbance,
    memory: bool,
    trace: str | None,
    html: str | None,
    keep: str | None,
    oracle: str,
    energy: bool,
    carbon: float | None,
    as_json: bool,
    **paper: Any,
) -> None:
    """Step time, throughput, MFU and memory of MODEL under a plan.

    The exit code is 1 if the plan does not fit in memory.

    With --oracle paper: the oracle of Kahira et al. 2021 as its authors released
    it. MODEL is one of their layer files (vgg16-paradl) or the path of a .net
    file; the plan is one of dp1, dp16, spatial4, pp4:gpipe +m8, filter4,
    channel4, dp256 filter4, dp256 spatial4.
    """
    if oracle == "paper":
        from foretell.replicas.paradl.page import answer_paper

        _only_steps(request.changed(run=run, disturbance=disturbance), memory, trace or keep or html)
        if energy or carbon is not None:
            raise BadInput("the paper's oracle knows no power", where="--energy", fix="--oracle foretell")
        gamma = 1.0 if paper["gamma"] is None else paper["gamma"]
        answer_paper(request, paper["release"], paper["ranks"], gamma, as_json)
        return
    if any(value is not None for value in paper.values()):
        raise BadInput("--release, --ranks and --gamma belong to --oracle paper", fix=EXAMPLE)
    if request.cluster is None:
        layers = request.model.endswith("-paradl") or request.model.endswith(".net")
        hint = "--on 16xv100-16, or the paper's own: --oracle paper" if layers else EXAMPLE
        raise BadInput("no cluster is given", where="--on", fix=hint)
    if request.forward and keep is not None:
        raise BadInput("`foretell check` compares training steps", where="--keep", fix="without --forward")
    if disturbance:
        _only_answered(PredictFiles(trace, html, keep))
    if carbon is not None and not 0 <= carbon < 1e5:
        raise BadInput(f"{carbon:g} g of CO2 a kWh", where="--carbon", fix="0 or more: --carbon 380")
    shown = Shown(memory, energy or carbon is not None, as_json, carbon)
    _predict(request.changed(run=run, disturbance=disturbance), PredictFiles(trace, html, keep), shown)


def _only_steps(request: Request, memory: bool, trace: str | None) -> None:
    """The paper's oracle knows no whole runs, tensors or timelines."""
    from foretell.oracle.request import UNMEASURED
    from foretell.oracle.training import STEP_ALONE

    asked = [
        ("--trace, --keep or --html", trace),
        ("--memory", memory),
        ("an option about a whole run", request.run != STEP_ALONE),
        ("a measurement", request.measured != UNMEASURED and request.cluster is None),
        ("a measured run", request.measured.anchors),
        ("a disturbance", request.disturbance),
        ("--forward", request.forward),
    ]
    for name, given in asked:
        if given:
            raise BadInput(f"{name} is not for --oracle paper", where="--oracle", fix="--oracle foretell")


class Shown(NamedTuple):
    """What an answer has besides, and whether it is for a program."""

    memory: bool
    energy: bool
    as_json: bool
    carbon: float | None  # grams a kWh


class PredictFiles(NamedTuple):
    """Files that were asked for beside the answer."""

    trace: str | None
    html: str | None
    keep: str | None


def _only_answered(files: PredictFiles) -> None:
    """Files are about a calm machine."""
    calm = {
        "--keep": (files.keep, "a kept prediction is of an undisturbed machine"),
        "--trace": (files.trace, "the timeline is of an undisturbed machine"),
        "--html": (files.html, "the charts are of an undisturbed machine"),
    }
    for option, (file, what) in calm.items():
        if file is not None:
            raise BadInput(what, where=option, fix="without disturbances")


def _predict(request: Request, files: PredictFiles, shown: Shown) -> None:
    from foretell.oracle.predicted import predicted

    if request.place.mixed:
        given = {"--trace": files.trace, "--html": files.html, "--keep": files.keep, "--energy": shown.energy}
        only_of_one_kind(given)
    asked, found = predicted(under_plan(request))
    if files.keep is not None:
        from foretell.cli.kept import keep_answer

        keep_answer(files.keep, asked, found)
    if files.trace is not None:
        _trace(asked, files.trace)
    if files.html is not None:
        from foretell.report.files import save
        from foretell.report.step_page import step_page

        save(step_page(asked.setting, asked.place, found, asked.notes), files.html)
    held = _alive(asked, found) if shown.memory or shown.as_json or not found.fits else ()
    energy = _energy(asked, found) if (shown.energy or shown.as_json) and not request.place.mixed else None
    if shown.energy and energy is None:
        raise BadInput("no power of processors was measured", where="--energy", fix="without --energy")
    changes = () if found.fits else _changes(asked, found)
    if shown.as_json:
        click.echo(_json(found, asked, request.run, held, changes, energy, shown.carbon))
    else:
        told = tuple(_drawn(found, energy, shown)) if energy else ()
        moments = _over_time(asked, found) if shown.memory else []
        click.echo(_page(found, asked.place.ranks, request.run, held, changes, told, moments))
        tell_notes((*asked.notes, *found.notes))
    if not found.fits:
        raise click.exceptions.Exit(NOTHING_FITS)


def _trace(asked: Resolved, file: str) -> None:
    from foretell.cost.price import priced
    from foretell.files import check_file
    from foretell.timeline.simulate import simulate
    from foretell.timeline.trace import write_trace

    if not file:
        raise BadInput("no file is named", where="--trace", fix="--trace step.json")
    check_file(Path(file), "--trace")
    write_trace(simulate(priced(asked.setting, asked.place)), file)


def _alive(asked: Resolved, found: Prediction) -> tuple[AliveTensors, ...]:
    from foretell.cost.price import priced
    from foretell.timeline.peak_breakdown import alive

    return alive(priced(asked.setting, asked.place), asked.place, found.memory)


def _over_time(asked: Resolved, found: Prediction) -> list[str]:
    """Each pipeline rank, and the fullest one slot by slot."""
    from foretell.cost.price import priced
    from foretell.timeline.memory_timeline import memory_timeline

    return [*stages_table(found), moments_table(memory_timeline(priced(asked.setting, asked.place), asked.place))]


def _energy(asked: Resolved, found: Prediction) -> StepEnergy | None:
    from foretell.cost.price import priced
    from foretell.oracle.energy import step_energy

    return step_energy(priced(asked.setting, asked.place), found)


def _drawn(found: Prediction, energy: StepEnergy, shown: Shown) -> Iterator[tuple[str, str]]:
    """The lines about energy, and about what it emits."""
    if shown.energy:
        yield from energy_lines(energy, found)
    if shown.carbon is not None:
        yield from carbon_lines(energy, shown.carbon, found.training.seconds if found.training else 0.0)


def _changes(asked: Resolved, found: Prediction) -> tuple[PlanChange, ...]:
    from foretell.oracle.calibrations import NONE
    from foretell.oracle.fit import would_fit
    from foretell.oracle.request import MeasurementFiles
    from foretell.oracle.training import STEP_ALONE

    request, files = asked.request, asked.request.measured
    other = files.profile or files.anchors  # they corrected this cluster, and say nothing of another
    hope = request.changed(
        cluster=asked.place if other else request.cluster,
        optimizer=asked.setting.job.optimizer,
        measured=MeasurementFiles(calibration=NONE if other else files.calibration, stack="" if other else files.stack),
        run=STEP_ALONE,
    )
    return would_fit(hope, found, asked.setting)


def _json(
    found: Prediction,
    asked: Resolved,
    run: TrainingRun,
    held: tuple[AliveTensors, ...],
    changes: tuple[PlanChange, ...],
    energy: StepEnergy | None,
    carbon: float | None,
) -> bytes:
    from foretell.oracle.rates import step_rates

    seconds = found.training.seconds if found.training else 0.0
    cost = _cost(found, seconds or found.step_seconds, run.conditions.price)
    answer = {
        **msgspec.to_builtins(found),
        **msgspec.to_builtins(step_rates(found)),
        "notes": [*asked.notes, *found.notes],
    }
    answer |= {"training_seconds": seconds, "cost": cost, "alive": held, "changes": changes}
    grams = carbon_grams(energy, carbon) if energy and carbon is not None else 0.0
    answer |= {"energy": energy, "carbon_grams": grams}
    return msgspec.json.encode(answer)


def _cost(found: Prediction, seconds: float, price: float) -> float:
    return found.ranks * seconds / HOUR * price


def _page(
    found: Prediction,
    ranks: int,
    run: TrainingRun,
    held: tuple[AliveTensors, ...],
    changes: tuple[PlanChange, ...],
    drawn: tuple[tuple[str, str], ...],
    moments: list[str],
) -> str:
    lines = [
        ("model", fit(found.model, WIDTH - 18)),
        ("plan", found.plan),
        ("on", f"{_place(found, ranks)}, trainer {found.trainer}"),
        *step_lines(found),
        *drawn,
    ]
    price = run.conditions.price
    if found.training:
        lines += run_lines(found.training, price, found.forward)
    elif price:
        cost = _cost(found, 1000 * found.step_seconds, price)
        lines.append(("cost", f"{cost:,.2f} for 1,000 steps, at {price:g} per GPU-hour"))
    head = "\n".join(folded(f"{name:<14}{text}", 14) for name, text in lines)
    findings = getattr(found, "findings", ())
    parts = [head, *([_findings_table(findings)] if findings else []), _time(found), _memory(found)]
    parts += [tensors_table(held)] if held else []
    parts += moments
    parts += _what_fits(found, changes)
    return "\n\n".join([*parts, *_why(found), _known(found)])


def _place(found: Prediction, ranks: int) -> str:
    """Where it runs, and how many GPUs of the cluster the plan leaves idle."""
    if found.ranks == ranks:
        return f"{gpus(found.ranks, found.device)} of {found.cluster}"
    return f"{found.ranks:,} of the {gpus(ranks, found.device)} of {found.cluster}, {ranks - found.ranks:,} idle"


def _what_fits(found: Prediction, changes: tuple[PlanChange, ...]) -> list[str]:
    if found.fits:
        return []
    if not changes:
        return ["Nothing that was tried would fit: no policy, axis, device or number of ranks."]
    rows = [
        [one.what, show_of(one.memory_bytes, one.usable), show_rate(one.samples_per_second)] for one in changes[:SHOWN]
    ]
    first = changes[0]
    place = f" --on {first.cluster}" if first.cluster != found.cluster else ""
    length = f" --seq {first.seq}" if first.seq else ""
    return [
        "\n".join(
            [
                table(["what would fit", "memory", "samples/s"], rows),
                folded(f"try --plan '{first.plan}'{place}{length}", 4),
            ]
        )
    ]


def _time(found: Prediction) -> str:
    parts = largest_first(shown_breakdown(found), SMALLEST * found.step_seconds)
    return parts_table("step time", parts, found.step_seconds, show_seconds)


def _memory(found: Prediction) -> str:
    parts = largest_first(shown_memory(found), 1.0)
    return parts_table("peak memory, worst rank", parts, found.memory_bytes, show_bytes)


def _why(found: Prediction) -> list[str]:
    if not found.bottlenecks:
        return []
    lines: list[str] = []
    for one in found.bottlenecks:
        lines += [folded(f"{one.kind}: {one.name}. {one.why}"), folded(f"try {one.relief}", before="  ")]
    return ["\n".join(lines)]


def _known(found: Prediction) -> str:
    """How each part was obtained."""
    parts = {_known_name(part): text for part, text in found.provenance.items()}
    width = 2 + max(len("accuracy"), *map(len, parts))
    lines = [folded(f"{part:<{width}}{text}", width) for part, text in parts.items()]
    lines += [folded(f"{'narrower':<{width}}{way}", width) for way in found.narrower[:1]]
    lines += [folded(f"{name:<{width}}{text}", width) for name, text in accuracy_line(found)]
    return "\n".join(["how it is known", *lines])


def _known_name(part: str) -> str:
    """What something is known of; of an axis the communication along it, exposed or not."""
    return part_name(part).removeprefix("exposed ").replace(" communication", " links") if "." in part else part


def _findings_table(found: tuple[AnchorFinding, ...]) -> str:
    """What was predicted and what was measured, part by part."""
    rows = [
        [
            part_name(one.part),
            _amount(one, one.predicted),
            _amount(one, one.measured),
            show_percent(one.ratio - 1, sign=True),
        ]
        for one in found
    ]
    return table(["what was measured", "predicted", "measured", "measured over predicted"], rows)


def _amount(one: AnchorFinding, value: float) -> str:
    return show_bytes(value) if one.part == "memory" else f"{value:.4g} s"
