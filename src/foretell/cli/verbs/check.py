"""foretell check: whether kept predictions still hold."""

from __future__ import annotations

import click
import msgspec

from foretell.cli.request_options import TRUST
from foretell.cli.table import WIDTH, fit, table
from foretell.errors import BadInput
from foretell.units import show_seconds

WORSE = 1
"""The exit code where something became worse."""


@click.command("check", short_help="Whether kept predictions still hold, for CI.")
@click.argument("files", nargs=-1, metavar="RECORD...")
@click.option("--tolerance", type=float, default=2.0, metavar="PERCENT", help="Regression that is accepted (2).")
@TRUST
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(files: tuple[str, ...], tolerance: float, as_json: bool) -> None:
    """Predict each RECORD again, and compare.

    A RECORD comes from `foretell predict ... --keep FILE`; commit it with your code.
    The exit code is 1 if a step takes longer or needs more memory than the tolerance
    allows, if a plan does not fit any more, or is refused.
    """
    from foretell.cli.kept import checked

    if not files:
        raise BadInput("no record is named", where="RECORD", fix="foretell check step.json, which --keep wrote")
    if not 0 <= tolerance <= 1000:
        raise BadInput(f"a tolerance of {tolerance:g} %", where="--tolerance", fix="2: per cent")
    found = [checked(file, tolerance / 100) for file in files]
    if as_json:
        click.echo(msgspec.json.encode({"checks": found, "regressed": any(one.regressed for one in found)}))
    else:
        rows = [
            [
                fit(one.file, WIDTH - 62),
                one.hash[:8],
                f"{show_seconds(one.kept_seconds)} > {show_seconds(one.step_seconds)}",
                f"{one.slower:+.1%}",
                f"{one.larger:+.1%}" if one.memory_bytes else "-",
                ", ".join(one.regressed) or "holds",
            ]
            for one in found
        ]
        click.echo(table(["record", "hash", "step", "", "memory", "verdict"], rows))
        for one in found:
            if one.why:
                click.echo(f"{one.file}: {one.why}")
    if any(one.regressed for one in found):
        raise click.exceptions.Exit(WORSE)
