"""The options that ask: each is a word of a `Request`, whichever verb has it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from foretell.cli.amounts import in_samples, read_batch
from foretell.cli.notes import tell_notes
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.request import Request

EXAMPLE = "foretell {verb} llama3-8b --on 16xh100{more} --batch 32"
ONE, OTHER = "'dp2:zero3 tp8:sp +bf16'", "'dp16:zero3 +recompute:block +bf16'"
HERE = "foretell run lenet --plan dp2 --batch 64"
"""What runs on the machine that somebody sits at."""


def example() -> str:
    """What would work, with the verb that was typed."""
    context = click.get_current_context(silent=True)
    verb = context.info_name if context else "predict"
    if context is not None and verb == "capacity":
        return _on_its_devices(context.params)
    return HERE if verb == "run" else EXAMPLE.format(verb=verb, more=_more(context))


def _on_its_devices(typed: dict[str, Any]) -> str:
    """A question about memory alone, with the devices and the model that were typed: no others are answered there."""
    place = typed.get("place") or "16xtpu-v5p"
    count = re.match("[1-9][0-9]{0,7}(?=x)", place)
    ranks, model = count[0] if count else "1", typed.get("model") or "llama3-8b"
    return f"foretell capacity {model} --on {place} --plan 'dp{ranks}:zero3 +bf16' --batch {ranks}"


def _more(context: click.Context | None) -> str:
    """What else a verb cannot do without: a plan or two of them, numbers of GPUs, a trainer to write for."""
    names = {one.name for one in context.command.params} if context else {"plan"}
    plans = f" --plan {ONE}" if "plan" in names else f" {ONE} {OTHER}" if "plan1" in names else ""
    target = " --to torchtitan" if "target" in names else ""
    return f"{plans or (' --gpus 8..64' if 'gpus' in names else '')}{target}"


def _not_blank(context: click.Context, option: click.Parameter, text: str | None) -> str:
    """A name as it was typed, nothing where it was not; a blank one is refused with all that there are."""
    if text is not None and not text.strip():
        from foretell.model.optimizer import OPTIMIZERS
        from foretell.plan.trainer import names

        known = names() if option.name == "trainer" else OPTIMIZERS
        raise BadInput(f"--{option.name} has no name", where=f"--{option.name}", fix=", ".join(sorted(known)))
    return text or ""


def words_of(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The words of an option that takes several; an option without any is a slip of the pen."""
    parts = [text.replace(",", " ").split() for text in texts]
    if not all(parts):
        raise BadInput(f"--{option.name} names nothing", where=f"--{option.name}", fix=f"--{option.name} dp,tp")
    return tuple(word for part in parts for word in part)


MODEL = click.argument("model", required=False)
FROM_CONFIG = click.option("--from-config", metavar="FILE", help="Your trainer's configuration or launch script.")
READING = click.option(
    "--as", "reading", type=click.Choice(("hf", "zoo")), help="Who reads a config.json: transformers or the zoo."
)
PLAN = click.option("--plan", metavar="TEXT", help="Axes and policies: 'dp8:zero3 tp8:sp +bf16'.")
ON = click.option("--on", metavar="CLUSTER", help="The cluster: 64xh100, dgx-a100, my.toml.")
BATCH = click.option("--batch", callback=read_batch, metavar="N", help="Global batch, in samples; or in tokens: 4M.")
BATCH_PER_RANK = click.option(
    "--batch-per-rank", type=int, metavar="N", help="Batch of each data-parallel rank, instead."
)
SEQ = click.option("--seq", type=int, metavar="N", help="Sequence length.")
TRAINER = click.option(
    "--trainer", metavar="NAME", default="pytorch", callback=_not_blank, help="The training framework (pytorch)."
)
OPTIMIZER = click.option("--optimizer", metavar="NAME", callback=_not_blank, help="The optimizer (the trainer's).")
CALIBRATION = click.option(
    "--calibration", metavar="FILE", default="", help="From `foretell calibrate`; or none (the kept one)."
)
STACK = click.option(
    "--stack", metavar="NAME", default="", help="From `foretell stack`: corrects by its measured steps."
)
PRECISION = click.option("--precision", metavar="NAME", default="", help="bf16, fp8, ... (bf16 if the device has it).")

FORWARD = click.option("--forward", is_flag=True, help="The forward pass alone: batch inference, evaluation.")

ONE_PLAN = (MODEL, FROM_CONFIG, READING, PLAN, ON, BATCH, BATCH_PER_RANK, SEQ, TRAINER, OPTIMIZER)
"""A model under a plan."""

JOB = (MODEL, READING, ON, BATCH, SEQ, TRAINER, OPTIMIZER, CALIBRATION, STACK)
"""A model on a cluster."""


def _usual_seconds() -> float:
    """Seconds of a search that nobody gave any; where answers must not go with the machine, none."""
    text = os.environ.get("FORETELL_SECONDS", "20")
    try:
        return float(text)
    except ValueError:
        raise BadInput("not a number of seconds", where="FORETELL_SECONDS", fix="20, or 0 for no limit") from None


SEARCH = (
    click.option("--only", multiple=True, callback=words_of, metavar="WORDS", help="Search only these: dp,tp."),
    click.option(
        "--without", multiple=True, callback=words_of, metavar="WORDS", help="Search all but these: pp,offload."
    ),
    click.option("--also", multiple=True, callback=words_of, metavar="WORDS", help="Also search these: local,offload."),
    click.option("--fix", metavar="TEXT", default="", help="Every plan has this: 'tp8 +recompute:block'."),
    click.option("--max-memory", metavar="SIZE", help="Usable memory per GPU: '60 GB'."),
)
"""What plans of a search have to be like."""

EFFORT = (
    click.option("--chance", metavar="SHARE", help="How sure the recommended plan is to fit in memory (90 %)."),
    click.option("--headroom", metavar="SHARE", help="Memory that it leaves free, instead of that: 8%."),
    click.option(
        "--seconds", type=float, metavar="S", default=_usual_seconds, help="Ends with the best so far (20; 0: never)."
    ),
    click.option("--exhaustive", is_flag=True, help="Price every plan, those that cannot win too."),
)
"""How far a search goes."""

TRUST = click.option(
    "--trust", multiple=True, expose_value=False, metavar="NAME", help="Code that a file may name: model.py:build."
)
"""Being typed is all that it takes (`foretell.trust`)."""

MEASURED = (
    click.option("--calibration", metavar="FILE", default="", help="From `foretell calibrate`; or none."),
    click.option("--profile", metavar="FILE", default="", help="From `foretell profile` of this model."),
    click.option("--anchor", multiple=True, metavar="FILE", help="A measurement, or a table or folder of them."),
    STACK,
    TRUST,
)
"""What a person measured."""


Verb: TypeAlias = Callable[..., None]


def with_options(*options: Callable[[Verb], Verb]) -> Callable[[Verb], Verb]:
    """Give a verb these options, in this order."""
    return lambda verb: functools.reduce(lambda called, option: option(called), reversed(options), verb)


def asks(*options: Callable[[Verb], Verb]) -> Callable[[Verb], Verb]:
    """Give a verb these options; it gets what they ask as one `Request`, and its own options beside it."""

    def asking(verb: Verb) -> Verb:
        @functools.wraps(verb)  # with the options that it has of its own
        def called(**typed: Any) -> None:
            request = taken(typed)
            verb(request, **typed)

        return with_options(*options)(called)

    return asking


def taken(options: dict[str, Any]) -> Request:
    """The question that options ask; they are taken out of all that were typed."""
    from foretell.oracle.request import Words, read

    words = {name: options.pop(name) for name in Words.__annotations__ if name in options}
    file: str | None = options.pop("from_config", None)
    tokens = words["batch"] if isinstance(words.get("batch"), str) else ""
    words |= {"batch": None} if tokens else {}
    if file is not None:
        from foretell.cli.config_options import filled

        words = filled(words, file)
    elif not words["model"]:
        raise BadInput("no model is given", where="MODEL", fix=example())
    if reading := options.pop("reading", None):
        words["model"] = _read_by(words["model"], reading)
    if tokens:
        words["batch"], note = in_samples(tokens, words["model"], words.get("seq"))
        words["notes"] = (*words.get("notes", ()), note)
    return read(**words)


def _read_by(model: str, reading: str) -> str:
    """A file or folder with who reads it."""
    from pathlib import Path

    if not Path(model).exists():
        raise BadInput(f"{model} is no file or folder", where="--as", fix="a config.json, or its folder")
    return f"{model}:as={reading}"


def on_cluster(request: Request, fix: str) -> Request:
    """The question, if it says where; `fix` is what would work."""
    if request.cluster is None:
        raise BadInput("no cluster is given", where="--on", fix=fix)
    return request


def under_plan(request: Request) -> Request:
    """The question, if it says how."""
    if request.plan is None:
        raise BadInput("no plan is given", where="--plan", fix=example())
    return request


def tell(found: Any, page: Callable[[Any], str], request: Request, as_json: bool) -> None:
    """Print an answer, for programs or for people, with what was chosen for the person who asks."""
    from foretell.oracle.resolve import place_of

    notes = tuple(dict.fromkeys((*place_of(request).notes, *getattr(found, "notes", ()))))
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({**msgspec.to_builtins(found), "notes": notes}))
        return
    click.echo(page(found))
    tell_notes(notes)
