"""foretell program: what each rank does in a step under a plan."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.notes import tell_notes
from foretell.cli.rank_figures import CommunicationRow, OperatorRow, allocations, communications, operators, waiting
from foretell.cli.request_options import FORWARD, ONE_PLAN, asks, under_plan
from foretell.cli.table import WIDTH, fit, folded, table
from foretell.errors import BadInput
from foretell.units import show_bytes, show_count, show_rate

if TYPE_CHECKING:
    from foretell.oracle.request import Request
    from foretell.oracle.resolve import Resolved
    from foretell.program.expanded import ExpandedProgram, RankKind

SHORTEST = 8
"""Operators that are shown without --full."""

FIGURES = ("times", "forward", "backward")

LONGEST_PATH = 28
LONGEST_NAME = 46

LARGEST = 4
"""Allocations that are shown without --full."""


MOST_PROBLEMS = 5
MOST_NOTES = 6

TOGETHER = "\x1f"
"""Stands for a blank at which no line is broken."""

RANGE = re.compile(r"(\d+)\.\.(\d+)")


@click.command("program", short_help="What each rank computes, sends and holds under a plan.")
@asks(*ONE_PLAN, FORWARD)
@click.option("--rank-kind", type=int, metavar="K", help="Show the ranks of this pipeline stage.")
@click.option("--full", is_flag=True, help="All operators and allocations, not only the largest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, every action in it.")
def command(request: Request, rank_kind: int | None, full: bool, as_json: bool) -> None:
    """What each rank computes, sends and holds in a step of MODEL under a plan.

    Without --on there are as many ranks as the plan needs. Without --batch the
    micro-batch size is 1.
    """
    from foretell.oracle.resolve import resolve, unmeasured
    from foretell.program.expand import expand
    from foretell.program.lower import lower
    from foretell.program.verify import verify

    asked = resolve(unmeasured(under_plan(request)))
    program = expand(lower(asked.setting))
    kind = _chosen(program, rank_kind)
    problems = verify(program, asked.setting.graph, asked.setting.trainer)
    if as_json:
        click.echo(_json(asked, program))
    else:
        click.echo(_page(asked, program, kind, full))
        notes = _notes(asked, program)
        shown = notes if full else notes[:MOST_NOTES]
        more = [f"and {len(notes) - len(shown)} more: --full"] if len(shown) < len(notes) else []
        tell_notes([*shown, *more])
    if problems:
        _report(problems)


def _report(problems: tuple[str, ...]) -> None:
    """A program that does not verify is foretell's mistake, not the person's: say so, and do not end well."""
    for problem in problems[:MOST_PROBLEMS]:
        click.echo(folded(f"foretell: internal error, please report it: {problem}"), err=True)
    if len(problems) > MOST_PROBLEMS:
        click.echo(f"foretell: and {len(problems) - MOST_PROBLEMS} more", err=True)
    sys.exit(1)


def _notes(asked: Resolved, program: ExpandedProgram) -> tuple[str, ...]:
    return (*asked.notes, *program.notes)


def _chosen(program: ExpandedProgram, place: int | None) -> RankKind:
    """The ranks that are shown: those at a place, or those that compute most."""
    if place is None:
        return max(program.kinds, key=lambda kind: (_work(program, kind), -kind.place))
    if not 0 <= place < len(program.kinds):
        last = len(program.kinds) - 1
        fix = f"--rank-kind 0 to {last}" if last else "leave it out: all ranks do the same"
        raise BadInput(f"the pipeline of {program.plan} has no place {place}", where="--rank-kind", fix=fix)
    return program.kinds[place]


def _work(program: ExpandedProgram, kind: RankKind) -> float:
    return sum(action.cost.matrix * times for action, times in program.computations(kind))


# the page


def _page(asked: Resolved, program: ExpandedProgram, kind: RankKind, full: bool) -> str:
    parts = [_head(asked, program)]
    if program.axes:
        parts.append(_axes(asked, program))
    parts.append(_kinds(program))
    if len(program.kinds) > 1:
        parts.append(f"Each of the {kind.ranks:,} ranks at place {kind.place} (others: --rank-kind K):")
    parts.append(_operators(operators(program, kind), full))
    parts.append(_communications(program, communications(program, kind)))
    parts.append(_memory(program, kind, full))
    return "\n\n".join(parts)


def _facts(lines: Sequence[tuple[str, str]]) -> str:
    return "\n".join(folded(f"{name:<18}{text}", 18) for name, text in lines)


def _head(asked: Resolved, program: ExpandedProgram) -> str:
    each = f"{asked.micro_batch} a rank"
    count = program.microbatches
    passes = f"{count} micro-batches of {each}" if count > 1 else f"{each}, in one pass"
    ranks = f"{program.ranks:,}"
    if asked.cluster is not None:
        cluster = asked.cluster
        ranks += f" of {cluster.text}: {cluster.nodes} x {cluster.ranks_per_node} {_devices(asked)}"
    return _facts(
        [
            ("model", fit(asked.request.model, WIDTH - 18)),
            ("plan", program.plan),
            ("batch", f"{program.batch:,} samples: {passes}"),
            ("trainer", f"{program.trainer}, {asked.setting.job.optimizer}"),
            ("ranks", ranks),
        ]
    )


def _devices(asked: Resolved) -> str:
    return " + ".join(group.device.name for group in asked.cluster.groups) if asked.cluster else ""


def _axes(asked: Resolved, program: ExpandedProgram) -> str:
    header = ["axis", "ranks", "apart"]
    rows = [[axis.name, f"{axis.ranks:,}", f"{axis.stride:,}"] for axis in program.axes]
    if asked.cluster is None:
        return table(header, rows)
    for row, axis in zip(rows, program.axes, strict=True):
        level = asked.cluster.level_of(axis.ranks, axis.stride)
        row.append(f"{level.name}, {level.link.name}")
    return table([*header, "crosses"], rows, left=(0, 3))


def _kinds(program: ExpandedProgram) -> str:
    groups: dict[tuple[Any, ...], list[RankKind]] = {}
    for kind in program.kinds:
        groups.setdefault(_likeness(program, kind), []).append(kind)
    header = ["place", "holds", "parameters", "weights", "gradients", "states", "alive"]
    rows: list[list[str]] = []
    for kinds in groups.values():
        rests = [program.stages[stage].memory for stage in kinds[0].stages]
        sums = [sum(getattr(rest, name) for rest in rests) for name in ("weights", "gradients", "states")]
        rows.append(
            [
                _ranges([kind.place for kind in kinds]) if len(program.kinds) > 1 else "all",
                _holds(program, kinds),
                show_count(sum(rest.parameters for rest in rests)),
                *map(show_bytes, sums),
                _span([waiting(program, kind).passes for kind in kinds]),
            ]
        )
    return table(header, rows, left=(0, 1))


def _likeness(program: ExpandedProgram, kind: RankKind) -> tuple[Any, ...]:
    """What two places have in common that are shown as one: all but the order of their slots."""
    stages = tuple(
        (tuple((layer.times, len(layer.forward.actions)) for layer in stage.layers), stage.memory)
        for stage in (program.stages[at] for at in kind.stages)
    )
    traffic = tuple((key, total.count, total.payload) for key, total in program.traffic(kind).items())
    return stages, traffic, _work(program, kind)


def _holds(program: ExpandedProgram, kinds: list[RankKind]) -> str:
    stages = kinds[0].stages
    layers = [layer for stage in stages for layer in program.stages[stage].layers]
    if len(kinds) > 1 or len(stages) > 1:
        numbered = sum(layer.times for layer in layers if layer.run.layer)
        text = f"{numbered} layer{'' if numbered == 1 else 's'}"
        return f"{text} in {len(stages)} stages" if len(stages) > 1 else f"{text} each"
    if len(layers) < 2:
        return layers[0].name if layers else "nothing"
    first, last = layers[0].name.partition(" to ")[0], layers[-1].name.rpartition(" to ")[2]
    return RANGE.sub(r"\1", first) + " to " + RANGE.sub(r"\2", last)


def _ranges(numbers: list[int]) -> str:
    """0, 1..6: numbers in a row put together."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}..{high}"


def _operators(rows: list[OperatorRow], full: bool) -> str:
    working = [row for row in rows if row.forward or row.backward]
    shown = rows if full else working[:SHORTEST]
    title = "operators"
    paths = _short_paths([row.path or "(root)" for row in shown])
    wide = max(len(title), *map(len, paths), 0)
    room = WIDTH - wide - 2 - sum(len(name) + 2 for name in FIGURES)
    lines: list[list[str]] = []
    for row, path in zip(shown, paths, strict=True):
        first, *more = _wrapped(_loops(row), room)
        lines.append([path, first, f"{row.times:,}", _flops(row.forward), _flops(row.backward)])
        lines += [["", line, "", "", ""] for line in more]
    text = table([title, "with local loops", *FIGURES], lines, left=(1, 0))
    hidden = len(rows) - len(shown)
    return text if hidden <= 0 else f"{text}\n... and {hidden} more: --full"


def _short_paths(paths: list[str]) -> list[str]:
    """`*.attention` for `layers.*.attention` where layers are those of one stack only; the middle of a long one cut."""
    stems = {path[: path.index("*")] for path in paths if "*" in path}
    if len(stems) == 1:
        paths = [path[path.index("*") :] if "*" in path else path for path in paths]
    return [fit(path, LONGEST_PATH) for path in paths]


def _loops(row: OperatorRow) -> str:
    sizes = [f"{name}{TOGETHER}{size}" for name, size in row.loops.items() if size != 1]
    return f"{row.operator} {' '.join(sizes)}"


def _wrapped(text: str, room: int) -> list[str]:
    """Lines of at most so many characters; a loop stays with its size."""
    return [line.replace(TOGETHER, " ") for line in textwrap.wrap(text, room, subsequent_indent="  ")]


def _flops(value: float) -> str:
    return show_count(value) if value else "-"


def _communications(program: ExpandedProgram, rows: list[CommunicationRow]) -> str:
    if not rows:
        return "communications: none"
    lines: list[list[str]] = []
    when = ""
    for row in rows:
        if row.when != when:
            when = row.when
            lines.append([when, "", "", "", "", ""])
        each = f"{'' if row.equal else '~'}{show_bytes(row.payload)}"
        sent = show_bytes(row.sent) if row.sent else "-"
        lines.append([f"  {row.kind}", row.what, _among(program, row), show_rate(row.count), each, sent])
    lines.append(["sent in a step", "", "", "", "", show_bytes(sum(row.sent for row in rows))])
    header = ["communications", "of", "along", "count", "payload", "sent"]
    return table(header, lines, left=(0, 2, 1))


def _among(program: ExpandedProgram, row: CommunicationRow) -> str:
    """The axes with their ranks, as a plan writes them; a pipeline's messages go from one rank to one other."""
    sizes = {axis.name: axis.ranks for axis in program.axes}
    if row.kind in ("send", "receive"):
        return "pp"
    if len(row.axes) == 1 and "." in row.axes[0]:
        return row.axes[0]
    joined: dict[str, int] = {}
    for name in row.axes:  # the axes of a grid are one
        word = name.partition(".")[0]
        joined[word] = joined.get(word, 1) * sizes[name]
    text = " ".join(f"{name}{ranks}" for name, ranks in joined.items())
    whole = row.ranks == math.prod(joined.values())
    return text if whole else f"{row.ranks} of {text}"


def _memory(program: ExpandedProgram, kind: RankKind, full: bool) -> str:
    stages = [program.stages[at].memory for at in kind.stages]
    held = waiting(program, kind)
    passes = "micro-batch" if held.passes == 1 else "micro-batches"
    lines = [
        ("kept", f"{_bytes(rest.kept for rest in stages)} of a micro-batch, from forward to backward"),
        ("alive", f"{show_bytes(held.bytes)}, of at most {held.passes} {passes} at once"),
        ("forward pass", f"{_bytes(rest.forward_peak for rest in stages)} at most, of one micro-batch"),
        ("backward pass", f"{_bytes(rest.backward_peak for rest in stages)} at most"),
    ]
    found = allocations(program, kind)
    shown = found if full else found[:LARGEST]
    rows = [[fit(row.name, LONGEST_NAME), row.kind, f"{row.times:,}", show_bytes(row.bytes)] for row in shown]
    return f"{_facts(lines)}\n\n{table(['largest allocations', 'kind', 'times', 'each'], rows, left=(1, 0))}"


def _bytes(values: Iterator[float]) -> str:
    """One figure, or one for each stage that a rank holds where they differ."""
    return " / ".join(dict.fromkeys(map(show_bytes, values)))


# for programs


def _json(asked: Resolved, program: ExpandedProgram) -> str:
    import msgspec

    bodies: dict[Any, int] = {}
    stages = [_stage(stage, bodies) for stage in program.stages]
    answer = {
        "model": asked.request.model,
        "plan": program.plan,
        "trainer": program.trainer,
        "optimizer": asked.setting.job.optimizer,
        "cluster": asked.cluster.text if asked.cluster else None,
        "batch": program.batch,
        "microbatches": program.microbatches,
        "micro_batch": asked.micro_batch,
        "ranks": program.ranks,
        "axes": list(_json_axes(asked, program)),
        "kinds": program.kinds,
        "stages": stages,
        "bodies": [{"phase": phase, "actions": msgspec.Raw(actions)} for phase, actions in bodies],
        "communications": [
            {"place": kind.place, **msgspec.structs.asdict(row)}
            for kind in program.kinds
            for row in communications(program, kind)
        ],
        "notes": _notes(asked, program),
    }
    return msgspec.json.encode(answer).decode()


def _json_axes(asked: Resolved, program: ExpandedProgram) -> Iterator[dict[str, Any]]:
    for axis in program.axes:
        found: dict[str, Any] = {"name": axis.name, "ranks": axis.ranks, "stride": axis.stride}
        if asked.cluster is not None:
            level = asked.cluster.level_of(axis.ranks, axis.stride)
            found |= {"level": level.name, "link": level.link.name}
        yield found


def _stage(stage: Any, bodies: dict[Any, int]) -> dict[str, Any]:
    """A stage whose bodies are numbers: equal layers of all stages have one body."""
    import msgspec

    def number(body: Any) -> int:
        return bodies.setdefault((body.phase, msgspec.json.encode(body.actions)), len(bodies))

    around = ("enter", "leave", "enter_back", "leave_back", "finish")
    layers = [
        {"name": one.name, "times": one.times, "forward": number(one.forward), "backward": number(one.backward)}
        for one in stage.layers
    ]
    return {
        "part": stage.part,
        "layers": layers,
        **{name: number(getattr(stage, name)) for name in around},
        "memory": stage.memory,
    }
