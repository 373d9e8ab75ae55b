"""What a person runs today, read from a trainer's configuration: `--from-config FILE`."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import click

from foretell.dialects import Configuration, Launch, Recipe, open_configuration, put_together
from foretell.errors import BadInput
from foretell.hardware import catalog

TASK: Final = "foretell.task"
"""Where a command finds which method a file trains by, and how many answers to a prompt."""


class Today(NamedTuple):
    """A configuration, what it says, and what a person should know about how it was read."""

    configuration: Configuration
    recipe: Recipe
    notes: tuple[str, ...]

    @property
    def plan(self) -> str:
        return str(put_together(self.recipe))

    @property
    def trainer(self) -> str:
        return self.configuration.dialect.trainer(self.recipe)


def today(file: str, cluster: str | None, batch: int | None) -> Today:
    """What a file says; ranks that it leaves open are those of the cluster."""
    found = open_configuration(file)
    ranks = catalog.named(cluster).cluster.ranks if cluster is not None else 0
    recipe = found.recipe(Launch(ranks, batch or 0))
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[TASK] = recipe.task, recipe.answers
        if recipe.task and context.info_name != "align":
            fix = f"foretell align --from-config {file}"
            raise BadInput(f"it trains by {recipe.task}, whose step has other phases too", where=file, fix=fix)
    said = f"{file} is read as {found.dialect.name}: {put_together(recipe)}, batch {recipe.batch}"
    about = [
        f", sequences of {recipe.sequence}" if recipe.sequence else "",
        f", {recipe.model}" if recipe.model else "",
    ]
    started = found.started
    other = f"{file} starts {started} ranks; --on has {ranks}, which are taken"
    return Today(found, recipe, ("".join([said, *about]), *([other] if 0 < started != ranks > 0 else []), *found.notes))


def filled(words: dict[str, Any], file: str) -> dict[str, Any]:
    """What was typed, and what was not as the file says it."""
    if words.get("batch_per_rank") is not None:
        raise BadInput("--batch-per-rank beside a configuration", where="--from-config", fix="--batch, of all ranks")
    found = today(file, words["on"], words["batch"])
    return words | {
        "model": model_of(words["model"], found),
        "plan": words["plan"] or put_together(found.recipe),
        "batch": words["batch"] or found.recipe.batch,
        "seq": words["seq"] or found.recipe.sequence or None,
        "trainer": words["trainer"] if typed("trainer") else found.trainer,
        "optimizer": words["optimizer"] or found.recipe.optimizer,
        "notes": found.notes,
    }


def model_of(given: str | None, found: Today) -> str:
    """The model that was typed, or the one that the file describes."""
    if given or found.recipe.model:
        return given or found.recipe.model
    unlike = found.configuration.unlike
    what = f"{found.configuration.file} does not say its model, or not all of its sizes"
    what = f"{found.configuration.file} has a model that the zoo has not. {unlike}" if unlike else what
    own = "llama3-8b" if not unlike else "mine.py:build"
    raise BadInput(what, where="MODEL", fix=f"the model before the options: {own} --from-config ...")


def typed(option: str) -> bool:
    """Whether a person gave an option, and not its default."""
    source = click.get_current_context().get_parameter_source(option)
    return source not in (None, click.core.ParameterSource.DEFAULT)
