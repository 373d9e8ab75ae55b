"""What `foretell plan` is asked: its options as questions of the search."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from foretell.cli.amounts import in_samples, of_tokens
from foretell.cli.mixed_pages import only_of_one_kind
from foretell.cli.notes import tell_notes
from foretell.cli.request_options import on_cluster
from foretell.cli.several import numbers
from foretell.cli.training_options import positive, span
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.cli.config_options import Today
    from foretell.oracle.request import Request
    from foretell.oracle.training import TrainingRun

EXAMPLE = "foretell plan llama3-8b --on 8xh100 --batch 64"

RUN = ("tokens", "samples", "epochs", "price")
"""What is said of a whole run."""


def today_of(options: dict[str, Any]) -> Today | None:
    """The configuration that is given; what was not typed is as it says. A batch of tokens becomes one of samples."""
    tokens = options["batch"] if options["batch"] and of_tokens(options["batch"]) else ""
    options["batch"] = None if tokens else options["batch"]
    found = _today(options)
    if tokens:
        count, note = in_samples(tokens, options["model"], options["seq"])
        options["batch"] = str(count)
        tell_notes([note])
    return found


def _today(options: dict[str, Any]) -> Today | None:
    file, out = options.pop("from_config"), options["out"]
    if file is None:
        if out is not None:
            raise BadInput(
                "no configuration to write anew", where="--out", fix="--from-config ds_config.json --out new.json"
            )
        if not options["model"]:
            raise BadInput("no model is given", where="MODEL", fix=EXAMPLE)
        return None
    from foretell.cli.config_options import model_of, today, typed

    if options["forward"]:
        raise BadInput("a configuration is of a training", where="--from-config, --forward", fix="one of the two")

    if options["batch_per_rank"] is not None or is_choice(options):
        raise BadInput("another way to say the batch", where="--from-config", fix="--batch N, or the file's own")
    found = today(file, options["on"], batch_of(options["batch"]))
    options |= {"model": model_of(options["model"], found), "batch": options["batch"] or str(found.recipe.batch)}
    options |= {"seq": options["seq"] or found.recipe.sequence or None}
    options |= {"optimizer": options["optimizer"] or found.recipe.optimizer}
    if not typed("trainer"):
        options["trainer"] = found.trainer
    tell_notes(found.notes)
    return found


def batch_of(text: str | None) -> int | None:
    """The number of samples that a text says."""
    if text is None:
        return None
    if not re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text):
        fix = "--batch 64, 4M (tokens), or --batch auto --noise-scale '2e6 tokens'"
        raise BadInput(f"{text!r} is no number of samples", where="--batch", fix=fix)
    return int(text)


def questions_of(options: dict[str, Any], batch: int | None) -> list[Request]:
    """One, or one for each number of ranks and of ranks that split the batch."""
    from foretell.oracle.planning import questions
    from foretell.oracle.request import Words, read

    words: dict[str, Any] = {name: options[name] for name in Words.__annotations__ if name in options}
    words["batch"] = batch
    if options["by"] == "memory" or options["table"] is not None:  # bounds leave out what is slow, not what is large
        words["exhaustive"] = True
    request = on_cluster(read(**words), EXAMPLE)
    if request.place.mixed:
        given = {f"--by {options['by']}": options["by"] in ("energy", "memory")}
        only_of_one_kind(given | {f"--{name}": options[name] for name in ("table", "html")})
    found = questions(request, counts(options["gpus"]) if options["gpus"] is not None else ())
    return [one.changed(effort=one.effort.shared(len(found))) for one in found]


def counts(text: str) -> list[int]:
    """The numbers of GPUs that a text says."""
    return numbers(text, "--gpus", "numbers of GPUs", "8..1024, or 8,24,64")


def run_of(options: dict[str, Any]) -> TrainingRun:
    from foretell.oracle.training import run

    tokens, samples, epochs, price = (positive(options[name], f"--{name}") for name in RUN)
    return run(tokens, samples, epochs or 1.0, price)


def limit_of(options: dict[str, Any]) -> float:
    """Seconds that a training may take."""
    limit = span(options["deadline"], "--deadline") if options["deadline"] is not None else float("inf")
    if options["deadline"] is not None and not (options["tokens"] or options["samples"]):
        raise BadInput("a deadline of nothing", where="--deadline", fix="with --tokens 1e12, or --samples 1e6")
    if options["by"] == "gpus" and options["gpus"] is None:
        raise BadInput("fewest GPUs of which numbers?", where="--by", fix="--by gpus --gpus 8..1024")
    return limit


def is_choice(options: dict[str, Any]) -> bool:
    """Whether the batch is to be chosen; what does not go with that is refused."""
    text = (options["batch"] or "").strip().lower()
    chosen = text == "auto" or ".." in text or "," in text
    if chosen and options["noise_scale"] is None:
        from foretell.oracle.batches import missing

        raise missing()
    if options["noise_scale"] is None:
        return False
    for name, wrong in (
        ("--batch-per-rank", options["batch_per_rank"] is not None),
        ("--deadline", options["deadline"] is not None),
        ("--forward", options["forward"]),
        (f"--by {options['by']}", options["by"] not in ("time", "money")),
    ):
        if wrong:
            fix = "--batch auto, with --by time or --by money"
            raise BadInput(f"{name} does not go with a noise scale", where="--noise-scale", fix=fix)
    return True
