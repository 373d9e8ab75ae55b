"""foretell contribute: a measured step as a row without names, which `foretell validate` scores."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from foretell.errors import BadInput
from foretell.files import write_whole


@click.command("contribute", short_help="A measured step of yours as an anonymous row.")
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--model", metavar="MODEL", default="", help="The model, where the file does not say it.")
@click.option("--on", "cluster", metavar="CLUSTER", default="", help="The cluster that it ran on: 8xh100.")
@click.option("--plan", metavar="TEXT", default="", help="Axes and policies: 'dp8:zero3 +bf16 +lora16'.")
@click.option("--batch", type=int, default=0, metavar="N", help="Global batch, in samples.")
@click.option("--seq", type=int, default=0, metavar="N", help="Sequence length.")
@click.option("--trainer", metavar="NAME", default="", help="The training framework (pytorch).")
@click.option("--optimizer", metavar="NAME", default="", help="The optimizer (the trainer's).")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Add the rows to this file."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(files: tuple[Path, ...], out: Path | None, as_json: bool, **given: str | int) -> None:
    """Print what was measured as rows of JSON, with no name of a host, person or file.

    FILE is a record of `foretell run`, a measurement in JSON, a trainer's log, or
    a table with a run a line; options say what it does not. Read the rows before
    you give them to anybody. `foretell validate FILE` scores such rows.
    """
    from foretell.oracle.contribution import rows

    if not files:
        raise BadInput("no measurement is given", where="FILE", fix="foretell contribute run.json --out rows.jsonl")
    found = [one for file in files for one in rows(file, given)]
    text = b"".join(msgspec.json.encode(one) + b"\n" for one in found).decode()
    click.echo(msgspec.json.encode({"rows": found}) if as_json else text, nl=as_json)
    if out is None:
        return
    try:
        before = out.read_bytes() if out.is_file() else b""
        write_whole(out, before + text.encode())
    except OSError as problem:
        raise BadInput(f"cannot write: {problem.strerror}", where=str(out), fix="another file") from None
