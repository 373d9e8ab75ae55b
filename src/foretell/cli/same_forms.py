"""The commands agree: model, plan and file are said in the same ways to every verb.

A verb has one way of its own for each (`diff MODEL PLAN1 PLAN2`, `sweep --model NAMES`, `report --html FILE`); what is
typed is put into that way before it is read, so that no verb knows of another:

    llama3-8b            --model llama3-8b
    'dp8:zero3 +bf16'    --plan 'dp8:zero3 +bf16'
    --html FILE          --out FILE
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from foretell.errors import BadInput

PLANS = ("plan1", "plan2")
"""Arguments that are plans."""


class TypedWords(NamedTuple):
    """What was typed: options with their values, those of another form, and what stands alone."""

    own: list[str]
    other: dict[str, list[str]]
    alone: list[str]


def in_own_form(command: click.Command, words: Sequence[str]) -> list[str]:
    """What was typed, as this verb reads it."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    if isinstance(command, click.Group) or any(one.nargs != 1 for one in arguments):
        return list(words)
    options = {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}
    typed = _sorted(options, words)
    names = [argument.name for argument in arguments]
    own, alone = _model(options, names, typed), typed.alone
    if "--plan" in options:
        plans = [word for word in alone if is_plan(word)]
        alone = [word for word in alone if word not in plans]
        _plan(own, plans, options["--plan"].multiple)
    elif all(name in names for name in PLANS):
        alone = [*alone, *typed.other.get("--plan", [])]
    if "--model" in options and not names:
        own += [word for model in alone for word in ("--model", model)]
        alone = []
    own += [word for file in typed.other.get("--out", []) for word in ("--html", file)]
    signs = any(word.startswith("-") for word in alone)
    return [*own, "--", *alone] if signs else [*alone, *own]


def _plan(own: list[str], plans: list[str], several: bool) -> None:
    """Plans that stand alone, after --plan; one that a shell took to pieces, since nobody quoted it, is one again."""
    at = own.index("--plan") + 1 if "--plan" in own else 0
    if at and plans and not several and at < len(own):
        plans.insert(0, own.pop(at))
        del own[at - 1]
    if not several and len(plans) > 1:
        if any(" " in plan.strip() for plan in plans):
            raise BadInput(f"two plans: {', '.join(plans)}", where="--plan", fix="one plan; two: foretell diff")
        plans = [" ".join(plans)]
    own += [word for plan in plans for word in ("--plan", plan)]


def _model(options: dict[str, click.Option], names: Sequence[str | None], typed: TypedWords) -> list[str]:
    """A model after --model goes to where the verb has it: before the rest, or behind the name of a stack."""
    models = typed.other.get("--model", [])
    if models:
        at, alone = names.index("model") if "model" in names else 0, typed.alone
        if len(models) > 1 or (len(alone) > at and not is_plan(alone[at]) and len(alone) >= len(names)):
            raise BadInput(f"two models: {', '.join([*alone[at : at + 1], *models])}", where="--model", fix="one model")
        alone.insert(at, models[0])
    return typed.own


def _sorted(options: dict[str, click.Option], words: Sequence[str]) -> TypedWords:
    """Options that the verb has, with their values; those that others have; and the rest."""
    found = TypedWords([], {}, [])
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.alone.extend(left)
            break
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            found.alone.append(word)
        elif name in options and _is_own(options, name, value if equals else left[0] if left else ""):
            found.own.append(word)
            if not equals and not options[name].is_flag and not options[name].count:
                found.own.extend(left[: options[name].nargs])
                del left[: options[name].nargs]
        elif _is_known_elsewhere(options, name) and (equals or left):
            found.other.setdefault(name, []).append(value if equals else left.pop(0))
        else:
            found.own.append(word)  # click says that there is no such option
    return found


def _is_own(options: dict[str, click.Option], name: str, value: str) -> bool:
    """A page is a page, also where --out is for something else."""
    return not (name == "--out" and "--html" in options and value.endswith(".html"))


def _is_known_elsewhere(options: dict[str, click.Option], name: str) -> bool:
    return name in ("--model", "--plan") or (name == "--out" and "--html" in options)


def is_plan(word: str) -> bool:
    """Whether a word is the text of a plan, or of the best one."""
    first = re.match(r"([a-z]+)[0-9]+(?:x[0-9]+)*(?:$|[\s:\[,])", word.strip().lower())
    if first is None:
        return word.strip() == "best" or word.startswith("+")
    from foretell.plan.members import strategies

    return first[1] in strategies()
