"""foretell analyze: what a model needs, and how far each dimension can be split."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.cli.notes import tell_notes
from foretell.cli.table import WIDTH, fit
from foretell.errors import BadInput
from foretell.files import save
from foretell.model.analysis import Analysis, AnalysisRow, analyze
from foretell.model.source import load
from foretell.units import show_bytes, show_count, show_flops

LONGEST = 40
"""Rows of a table that are shown before the rest is added up."""


@click.command("analyze", short_help="What a model needs, and how far it can be split.")
@click.argument("model")
@click.option("--batch", type=int, help="Samples in the batch (1).")
@click.option("--seq", type=int, help="Sequence length.")
@click.option("--by", type=click.Choice(["kind", "block", "operator"]), help="Show only this table, in full.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, everything in it.")
@click.option("--csv", "as_csv", is_flag=True, help="The table as CSV (by operator, or as --by says).")
@click.option("--graph", "graph_file", type=click.Path(dir_okay=False), help="Also write the graph to this file.")
def command(
    model: str, batch: int | None, seq: int | None, by: str | None, as_json: bool, as_csv: bool, graph_file: str | None
) -> None:
    """What MODEL needs, and how far each dimension can be split.

    MODEL is a name (`foretell list models`) with fields set if wished
    (llama3-8b:layers=16,seq=8192), a Hugging Face config.json or its folder, a
    .net layer file, a graph written with --graph, or file.py:factory for any
    PyTorch module.
    """
    if as_json and as_csv:
        raise BadInput("--json and --csv together", fix="one of them")
    graph = load(model, batch, seq)
    if graph_file:
        save(Path(graph_file), graph.to_json(), "graph")
    found = analyze(graph)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found))
    elif as_csv:
        click.echo(_csv(_table(found, by or "operator")))
    elif by:
        click.echo(_rows(by, _table(found, by), found, len(_table(found, by))))
    else:
        click.echo(_page(found))
    tell_notes(() if as_json else found.warnings)


def _table(found: Analysis, by: str) -> list[AnalysisRow]:
    return {"kind": found.kinds, "block": found.blocks, "operator": found.operators}[by]


def _csv(rows: list[AnalysisRow]) -> str:
    from foretell.cli.table import comma_separated

    fields = AnalysisRow.__struct_fields__
    return comma_separated(fields, [[getattr(row, field) for field in fields] for row in rows])


def _page(found: Analysis) -> str:
    parts = [_summary(found), _rows("kind", found.kinds, found, LONGEST)]
    if len(found.blocks) > 1:
        parts.append(_rows("block", found.blocks, found, LONGEST))
    parts.append(_limits(found))
    if found.convolution_methods:
        parts.append(_convolutions(found))
    return "\n\n".join(parts)


def _summary(found: Analysis) -> str:
    samples = "1 sample" if found.batch == 1 else f"{found.batch} samples"
    frozen = found.parameters - found.trainable_parameters
    parameters = f"{found.parameters:,}"
    if frozen:
        parameters += f", {frozen:,} of them frozen"
    moved, kept = (show_bytes(found.optimizers["adamw"][key]) for key in ("bytes_moved", "state_bytes"))
    vector = found.vector_flops["forward"] + found.vector_flops["backward"]
    lines = [
        (f"{fit(found.model, WIDTH - len(samples) - 2)}, {samples}", ""),
        ("parameters", f"{parameters} ({show_bytes(found.parameter_bytes)} in {found.dtype})"),
        ("forward", f"{show_flops(found.forward_flops)} on matrix units"),
        ("backward", f"{show_flops(found.backward_flops)}; element-wise {show_flops(vector)} in all"),
        (
            "saved for backward",
            f"{show_bytes(found.saved_bytes)} ({show_bytes(found.saved_bytes_per_sample)} a sample)",
        ),
        ("intensity", f"{found.arithmetic_intensity['step']:.3g} flops a byte moved, over forward and backward"),
        ("AdamW update", f"moves {moved}, keeps {kept} of state (fp32, fused)"),
        ("kernels", f"{found.launches['eager']:,} eager, {found.launches['fused']:,} with element-wise ones fused"),
        ("work W, depth D", f"{found.work:,} and {found.depth:,} (forward pass)"),
        ("parallelism W/D", f"{show_count(found.average_parallelism)} on average"),
        *(("", _bound_line(bound)) for bound in found.bounds[1:]),
    ]
    return "\n".join(f"{name:<20}{text}".rstrip() if text else name for name, text in lines)


def _bound_line(bound: dict[str, float]) -> str:
    low, high = show_count(bound["low"]), show_count(bound["high"])
    return f"{low} <= T <= {high} steps on {show_count(bound['processors'])} processors"


def _rows(by: str, rows: list[AnalysisRow], found: Analysis, most: int) -> str:
    from foretell.cli.table import table

    total = max(1, found.forward_flops + found.backward_flops)
    ordered = rows if by == "block" else sorted(rows, key=lambda row: -row.forward_flops - row.backward_flops)
    header = [f"by {by}", "times", "parameters", "forward", "backward", "share", "saved"]
    lines = [
        [
            row.name or "(root)",
            f"{row.count:,}",
            show_count(row.parameters) if row.parameters else "-",
            show_flops(row.forward_flops) if row.forward_flops else "-",
            show_flops(row.backward_flops) if row.backward_flops else "-",
            f"{(row.forward_flops + row.backward_flops) / total:.1%}",
            show_bytes(row.saved_bytes) if row.saved_bytes else "-",
        ]
        for row in ordered[:most]
    ]
    text = table(header, lines)
    hidden = len(ordered) - most
    return text if hidden <= 0 else f"{text}\n... and {hidden} more: --by {by}"


def _limits(found: Analysis) -> str:
    from foretell.cli.table import table

    rows = [[way, f"{ranks:,}", found.limited_by[way]] for way, ranks in found.limits.items()]
    return table(["split by", "ranks at most", "because of"], rows, left=(0, 2))


def _convolutions(found: Analysis) -> str:
    from foretell.cli.table import table

    rows = [[m.method, f"{m.layers}", show_count(m.work), f"{m.depth:,}"] for m in found.convolution_methods]
    return table(["convolutions by", "layers", "work", "depth"], rows)
