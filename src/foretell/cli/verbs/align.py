"""foretell align: a step of DPO, reward training, GRPO or PPO, phase by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.amounts import read_price
from foretell.cli.main import NOTHING_FITS
from foretell.cli.request_options import (
    BATCH,
    CALIBRATION,
    FROM_CONFIG,
    MODEL,
    ON,
    OPTIMIZER,
    PLAN,
    READING,
    SEQ,
    TRAINER,
    asks,
    on_cluster,
    tell,
    under_plan,
)
from foretell.cli.training_options import positive
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.alignment_question import AlignmentQuestion
    from foretell.oracle.request import Request
    from foretell.oracle.rollout import AnswerLoad

EXAMPLE = (
    "foretell align llama3-8b --method grpo --on 16xh100 --plan 'dp16:zero3 +m16 +recompute:block +bf16' "
    "--batch 128 --answers 16 --prompt 256 --lengths 1000,4096"
)

PAIRS = "--on 4xh100 --plan 'dp4:zero3 +m8 +recompute:block +bf16' --batch 64 --seq 1024"
EXAMPLES = {name: f"foretell align llama3-8b --method {name} {PAIRS}" for name in ("dpo", "reward")}


@click.command("align", short_help="A step of DPO, reward training, GRPO or PPO.")
@asks(MODEL, FROM_CONFIG, READING, PLAN, ON, BATCH, SEQ, TRAINER, OPTIMIZER, CALIBRATION)
@click.option("--method", metavar="NAME", help="dpo, reward, grpo or ppo.")
@click.option("--answers", type=int, metavar="N", help="Answers that are written to each prompt (1).")
@click.option("--prompt", type=int, metavar="N", help="Tokens of a prompt (512).")
@click.option("--lengths", metavar="FILE", help="Tokens of each answer, one a line; or MEAN,MAXIMUM: 1000,4096.")
@click.option("--padded", is_flag=True, help="Rows of training as long as the longest answer.")
@click.option("--updates", type=int, default=1, metavar="N", help="Optimizer steps over the answers of a step (1).")
@click.option("--epochs", type=int, default=1, metavar="N", help="How often these go through all answers (1).")
@click.option("--reference", is_flag=True, help="GRPO with a penalty for leaving a reference.")
@click.option("--remembered", is_flag=True, help="The reference's logarithms were taken before training.")
@click.option("--reward", metavar="MODEL", help="The reward model, if it is not as large as the policy.")
@click.option("--critic", metavar="MODEL", help="The critic, likewise.")
@click.option("--rollout", metavar="WORD", help="A replica that writes: tp4, pp2 tp8, ep16 (the fastest).")
@click.option("--slots", type=int, metavar="N", help="Answers in flight on a replica, at most (1024).")
@click.option("--place", metavar="WORD", help="Rollouts together, host or apart (the fastest).")
@click.option("--to", "target", metavar="NAME", help="Print the configuration instead: trl, axolotl, llama-factory.")
@click.option("--price", callback=read_price, metavar="P", help="Also print the cost, at this price of a GPU-hour.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    request: Request,
    method: str | None,
    answers: int | None,
    prompt: int | None,
    lengths: str | None,
    price: float | None,
    target: str | None,
    as_json: bool,
    **options: str | int | bool | None,
) -> None:
    """A step of a method after pre-training: its phases, their memory, and where rollouts run.

    The batch is in pairs (dpo, reward; --seq: tokens of each answer with its prompt) or in
    prompts (grpo, ppo). A plan of fewer ranks than the cluster leaves the others to rollouts.
    The exit code is 1 if no way fits.
    """
    from foretell.cli.align_pages import align_page
    from foretell.oracle.alignment import aligned

    request, method, answers = _as_file_says(request, method, answers, lengths is not None)
    _all_said(request, method, lengths)
    assert method is not None
    request = under_plan(on_cluster(request, EXAMPLE))
    question = _question(request, method, _written(request, (answers, prompt, lengths)), options)
    if target is not None:
        _write(question, target)
        return
    found = aligned(question, positive(price, "--price"))
    tell(found, align_page, request, as_json)
    if not found.way.fits:
        raise click.exceptions.Exit(NOTHING_FITS)


def _as_file_says(
    request: Request, method: str | None, answers: int | None, written: bool
) -> tuple[Request, str | None, int | None]:
    """The method of a configuration, where none is typed; a file that counts answers has as many prompts fewer."""
    from foretell.cli.config_options import TASK, typed

    said, each = click.get_current_context().meta.get(TASK, ("", 0))
    answers = answers if answers is not None else each or None
    if written and not typed("seq"):  # rows follow from answers, whatever length the file allows
        request = request.changed(seq=0)
    if each and answers and request.batch and not typed("batch"):
        if request.batch % answers:
            what = f"{request.batch} answers a step are no whole groups of {answers}"
            raise BadInput(what, where="--answers", fix="a divisor of the batch, or --batch, in prompts")
        request = request.changed(batch=request.batch // answers)
    return request, method or said or None, answers


def _write(question: AlignmentQuestion, target: str) -> None:
    """The configuration that trains so; what it does not say beside it."""
    from foretell.cli.verbs.export import tell as tell_unsaid
    from foretell.dialects import dialect, shape_of, taken_apart, write
    from foretell.oracle.alignment_question import row_tokens

    request, each = question.request, question.answers.each if question.answers else 0
    assert request.plan is not None
    recipe = taken_apart(
        request.plan,
        batch=request.batch * max(1, each),
        model=request.model,
        shape=shape_of(request.model),
        sequence=row_tokens(question),
        optimizer=request.optimizer or "adamw",
        task=question.method,
        answers=each if question.method == "grpo" else 0,
    )
    chosen = dialect(target)
    written = write(chosen, recipe, [f"{request.model}, {question.method}", f"plan: {request.plan}"])
    click.echo(written.text, nl=False)
    tell_unsaid(written, ())


def _all_said(request: Request, method: str | None, lengths: str | None) -> None:
    """Refuse a question of which something is missing, and say all of it."""
    from foretell.oracle.phase import method as known

    writes = method is not None and known(method).writes
    said = {
        "--method": method is not None,
        "--on": request.cluster is not None,
        "--plan": request.plan is not None,
        "--batch": bool(request.batch),
        "--lengths": lengths is not None or not writes,
    }
    missing = [name for name, given in said.items() if not given]
    if missing == ["--method"]:
        raise BadInput("no method is given", where="--method", fix="dpo, reward, grpo or ppo")
    if missing:
        what = f"not said: {', '.join(missing)}"
        raise BadInput(what, where=missing[0], fix=EXAMPLES.get(str(method), EXAMPLE))


def _written(request: Request, said: tuple[int | None, int | None, str | None]) -> AnswerLoad | None:
    """The answers that are written, where any are described."""
    from foretell.oracle.lengths import read_lengths
    from foretell.oracle.rollout import AnswerLoad

    each, prompt, lengths = said
    if lengths is None:
        if each is not None or prompt is not None:
            raise BadInput("answers, and how long they are is not given", where="--lengths", fix="--lengths 1000,4096")
        return None
    if request.seq:
        raise BadInput("rows follow from answers, and a length is given too", where="--seq", fix="without --seq")
    if not request.batch:
        raise BadInput("no batch is given", where="--batch", fix="--batch 128, in prompts")
    counts = {"--answers": 1 if each is None else each, "--prompt": 512 if prompt is None else prompt}
    for name, value in counts.items():
        _at_least_one(value, name)
    found = read_lengths(lengths)
    return AnswerLoad(prompts=request.batch, each=counts["--answers"], prompt=counts["--prompt"], lengths=found)


def _question(
    request: Request, method: str, answers: AnswerLoad | None, options: dict[str, str | int | bool | None]
) -> AlignmentQuestion:
    from foretell.oracle.alignment_question import PLACES, AlignmentQuestion
    from foretell.oracle.replica import read
    from foretell.oracle.rollout import SLOTS

    place, rollout = options["place"], options["rollout"]
    if place is not None and place not in PLACES:
        raise BadInput(f"rollouts {place!r}", where="--place", fix=" | ".join(PLACES))
    for name in ("updates", "epochs", "slots"):
        _at_least_one(options[name], f"--{name}")
    models = tuple((role, str(options[role])) for role in ("reward", "critic") if options[role])
    return AlignmentQuestion(
        request=request,
        method=method,
        answers=answers,
        models=models,
        reference=bool(options["reference"]),
        remembered=bool(options["remembered"]),
        updates=int(options["updates"] or 1),
        epochs=int(options["epochs"] or 1),
        padded=bool(options["padded"]),
        replica=read(str(rollout)) if rollout is not None else None,
        slots=int(options["slots"] or SLOTS),
        place=str(place or ""),
    )


def _at_least_one(value: str | int | bool | None, where: str) -> None:
    if isinstance(value, int) and value < 1:
        raise BadInput(f"{where} is {value}", where=where, fix="1 or more")
