"""foretell compare: what was predicted for a run, and what was measured."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from foretell.cli.named_record import read_named
from foretell.cli.notes import tell_notes
from foretell.cli.request_options import TRUST
from foretell.cli.run_pages import comparison_page


@click.command("compare", short_help="Predicted against measured, for a run.")
@click.argument("record", type=click.Path(exists=True, dir_okay=False))
@click.option("--on", "cluster", metavar="CLUSTER", help="Where it ran (what the record says).")
@click.option("--calibration", metavar="FILE", default="", help="From `foretell calibrate`; or none.")
@click.option("--disturbed", is_flag=True, help="Include the faults that were injected into the run.")
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@TRUST
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    record: str, cluster: str | None, calibration: str, disturbed: bool, html: str | None, as_json: bool
) -> None:
    """Predict the run of RECORD again, and subtract: time, phases, memory, collectives."""
    from foretell.report.files import check_page
    from foretell.runtime.comparison import of_record

    check_page(html)
    found = of_record(read_named(Path(record)), record, cluster or "", calibration, disturbed)
    if html is not None:
        from foretell.report.comparison import comparison_page as page_of
        from foretell.report.files import save

        save(page_of(found), html)
        click.echo(f"note: the report is {html}", err=True)
    click.echo(msgspec.json.encode(found) if as_json else comparison_page(found))
    tell_notes(() if as_json else found.predicted.notes)
