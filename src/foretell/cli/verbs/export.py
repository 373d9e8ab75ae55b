"""foretell export: a plan as the configuration of a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.notes import tell_notes
from foretell.cli.request_options import ONE_PLAN, asks, under_plan
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.dialects import Dialect, Unsaid, WrittenConfig
    from foretell.oracle.request import Request
    from foretell.oracle.resolve import Resolved

EXAMPLE = "foretell export llama3-8b --on 64xh100 --plan 'dp8:zero3 tp8:sp +bf16' --batch 64 --to torchtitan"


@click.command("export", short_help="A plan as the configuration of a trainer.")
@asks(*ONE_PLAN)
@click.option("--to", "target", metavar="NAME", help="The trainer's configuration: torchtitan, megatron-lm, ...")
@click.option("--out", metavar="FILE", help="Write the configuration there.")
@click.option("--launch", "launcher", metavar="NAME", help="Also print how to start it: torchrun, sbatch, ray.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, target: str | None, out: str | None, launcher: str | None, as_json: bool) -> None:
    """Write the plan for MODEL as the configuration of a trainer.

    A plan that the trainer cannot express is refused. Notes list what does not go into
    its file, and where it belongs. With --launch and no --out, only the command or
    script that starts it is printed.
    """
    from foretell.dialects import dialect, names, recipe_of, write
    from foretell.dialects.launchers import launch

    if target is None:
        raise BadInput("no target is named", where="--to", fix=", ".join(names()))
    chosen = dialect(target)
    asked = _asked(request, chosen)
    recipe = recipe_of(asked.setting, request.model, asked.cluster)
    written = write(chosen, recipe, _head(asked, chosen))
    file = out or chosen.file
    words = chosen.command(written.document, file)
    start = launch(launcher or chosen.launcher, recipe, words, chosen.own, chosen.variables(recipe))
    if out is not None:
        save(out, written.text)
    if as_json:
        told = {"dialect": target, "plan": str(asked.setting.plan), "trainer": asked.setting.trainer.name, "file": file}
        told |= {"text": written.text, "unsaid": written.unsaid, "launch": start, "notes": asked.notes}
        click.echo(msgspec.json.encode(told))
        return
    if launcher is not None:
        click.echo(start, nl=False)
    elif out is None:
        click.echo(written.text, nl=False)
    tell(written, asked.notes)


def _asked(request: Request, chosen: Dialect) -> Resolved:
    """The setting under the trainer that the file is for, unless another one was named."""
    from foretell.cli.config_options import typed
    from foretell.dialects import trainer_of
    from foretell.oracle.resolve import resolve, unmeasured

    if request.plan is not None and not typed("trainer"):
        request = request.changed(trainer=trainer_of(chosen, request.plan))
    return resolve(unmeasured(under_plan(request)))


def _head(asked: Resolved, chosen: Dialect) -> list[str]:
    job = asked.setting.job
    place = f" on {asked.cluster.text}" if asked.cluster else ""
    return [
        f"{asked.request.model}{place}, batch {job.batch}",
        f"plan: {asked.setting.plan}",
        f"fields of {chosen.version}; written by foretell",
    ]


def save(file: str, text: str) -> None:
    """Write a file, or say why not."""
    from foretell.files import save as save_whole

    save_whole(Path(file), text.encode(), "configuration")


def tell(written: WrittenConfig, notes: tuple[str, ...]) -> None:
    """What is not in the file, and what else a person should know, beside the answer."""
    unsaid = [f"{_figure(one)} is not said in this file: {one.where}" for one in written.unsaid]
    tell_notes([*unsaid, *notes])


def _figure(one: Unsaid) -> str:
    """A figure with its value, in words of a plan where it has a word of its own there."""
    if one.figure == "wide_adapters":
        return "+fp32-adapters" if one.value else "that adapters are in 16 bits, as the plan has them,"
    return f"{one.figure} {_value(one.value)}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode().strip('"')
