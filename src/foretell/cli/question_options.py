"""Options of the verbs that compare plans with the search: what is asked about, and what plans may be like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from foretell.cli.notes import tell_notes
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.planning import Question


class Wanted(NamedTuple):
    """The options as they were typed; None where they were not."""

    model: str
    cluster: str | None
    batch: int | None
    seq: int | None
    trainer: str
    optimizer: str
    precision: str = ""
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    fixed: str = ""
    max_memory: str | None = None
    calibration: str = ""

    def question(self, example: str) -> Question:
        """The one question that these stand for."""
        return self.questions(example)[0]

    def questions(self, example: str, batch_per_rank: int | None = None, counts: Sequence[int] = ()) -> list[Question]:
        """One, or one for each number of ranks and of ranks that split the batch."""
        from foretell.oracle.planning import asked
        from foretell.oracle.space import Wishes

        if self.cluster is None:
            raise BadInput("no cluster is given", where="--on", fix=example)
        return asked(
            self.model,
            self.cluster,
            self.batch,
            batch_per_rank,
            trainer=self.trainer,
            optimizer=self.optimizer,
            seq=self.seq,
            precision=self.precision,
            wishes=Wishes(only=self.only, without=self.without, also=self.also, fixed=self.fixed.strip()),
            max_memory=self.max_memory or 0.0,
            counts=counts,
            calibration=self.calibration,
        )


def words_of(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The words of an option that takes several; an option without any is a slip of the pen."""
    parts = [text.replace(",", " ").split() for text in texts]
    if not all(parts):
        raise BadInput(f"--{option.name} names nothing", where=f"--{option.name}", fix=f"--{option.name} dp,tp")
    return tuple(word for part in parts for word in part)


CALIBRATION = click.option(
    "--calibration", metavar="FILE", default="", help="What `foretell calibrate` wrote; or none (the one kept here)."
)

_JOB = (
    click.option("--on", "cluster", metavar="CLUSTER", help="The cluster: 64xh100, dgx-a100, my.toml."),
    click.option("--batch", type=int, metavar="N", help="Samples of a step, of all ranks together."),
    click.option("--seq", type=int, metavar="N", help="Tokens in a sequence."),
    click.option("--trainer", metavar="NAME", default="pytorch", help="The software that runs it (pytorch)."),
    click.option("--optimizer", metavar="NAME", default="", help="The update rule (the trainer's)."),
    CALIBRATION,
)

PRECISION = click.option(
    "--precision", metavar="NAME", default="", help="bf16, fp8, ... (bf16 where the device has it)."
)

_WISHES = (
    click.option("--only", multiple=True, callback=words_of, metavar="WORDS", help="Search these: dp,tp."),
    click.option("--without", multiple=True, callback=words_of, metavar="WORDS", help="Not these: pp,offload."),
    click.option("--also", multiple=True, callback=words_of, metavar="WORDS", help="Those not searched unasked."),
    click.option("--fix", "fixed", metavar="TEXT", default="", help="Each plan has this: 'tp8 +recompute:block'."),
    click.option("--max-memory", metavar="SIZE", help="A rank may use this much: '60 GB'."),
)


def about(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of a model, a cluster and a job."""
    for option in reversed(_JOB):
        verb = option(verb)
    return click.argument("model")(verb)


def searched(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options that say which plans are searched."""
    for option in reversed(_WISHES):
        verb = option(verb)
    return verb


def wanted(options: dict[str, Any]) -> Wanted:
    """Those of a verb's options that ask, taken out of them."""
    return Wanted(**{name: options.pop(name) for name in Wanted._fields if name in options})


def tell(found: Any, page: Callable[[Any], str], question: Question, as_json: bool) -> None:
    """Print an answer, for programs or for people, with what was chosen for the person who asks."""
    notes = (*question.place().notes, *getattr(found, "notes", ()))
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({**msgspec.to_builtins(found), "notes": notes}))
        return
    click.echo(page(found))
    tell_notes(notes)
