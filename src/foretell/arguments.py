"""What the functions of the package may be given: read off their signatures, so that a slip is told by its argument.

What a command line cannot say (a list for a number, None for a model) would otherwise be met somewhere inside, as a
TypeError about something that nobody wrote.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast

from foretell import trust

P = ParamSpec("P")
R = TypeVar("R")

Reader: TypeAlias = Callable[[Any], Any]
"""Gives a value as it is used, or WRONG."""

WRONG: Final = object()
"""What a reader gives for something else; None may be a value."""

EXAMPLES: Final = {
    "model": 'a name or a file, model="llama3-8b"; a module: foretell.trace(module, inputs)',
    "on": 'a cluster, on="8xh100"',
    "plan": 'plan="dp8:zero3 +bf16"',
    "plan1": 'plan1="dp8:zero3 +bf16"',
    "plan2": 'plan2="dp2:zero3 tp4:sp +bf16"',
    "batch": "a whole number of samples, batch=64",
    "batch_per_rank": "a whole number of samples, batch_per_rank=2",
    "seq": "a whole number of tokens, seq=4096",
    "trainer": 'trainer="pytorch"',
    "optimizer": 'optimizer="adamw"',
    "precision": 'precision="bf16"',
    "only": 'only=["dp", "tp"]',
    "without": 'without=["pp"]',
    "also": 'also=["offload"]',
    "fix": 'fix="tp8 +recompute:block"',
    "max_memory": 'max_memory="60 GB"',
    "chance": "a share, chance=0.9",
    "headroom": "a share of memory, headroom=0.08",
    "seconds": "a number, seconds=20; None: no limit",
    "calibration": 'a file, calibration="h200.json", or "none"',
    "profile": 'a file, profile="profile.json"',
    "anchor": 'files, anchor=["run.json"]',
    "tokens": "a number, tokens=1e12",
    "samples": "a number, samples=1e6",
    "conditions": "a foretell.oracle.training.Conditions",
    "gpus": "whole numbers, gpus=[1, 2, 4, 8]",
    "noise_scale": 'noise_scale="2e6 tokens", a number of samples, or the record of a run',
    "rate": "a number, rate=0.3, or several: rate=[0.3, 1.0]",
    "workers": "whole numbers, workers=[4, 16]",
    "disturbance": "a foretell.hardware.disturbance.Disturbance",
    "disturbances": "a foretell.virtual.disturbance.Disturbances",
    "tempo": "a foretell.learning.tempo.Tempo",
    "out": 'a folder, out="my-sweep"',
}
"""What would work, by the name of the argument."""

FORMERLY: Final = {
    "cluster": "on",
    "clusters": "on",
    "models": "model",
    "batches": "batch",
    "trainers": "trainer",
    "seqs": "seq",
    "precisions": "precision",
    "plans": "plan",
    "anchors": "anchor",
    "learns": "learn",
    "rates": "rate",
    "seconds": "timeout",
}
"""Names of arguments of before, that work until the next release: now all are those of the command line's options."""

WORDS: Final = {
    "str": "a text",
    "str | Sequence[str]": "a text, or several",
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
}
"""And by what it may be, for the others."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called with nothing but what its signature says."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    readers: dict[str, Reader] = {}  # made when they are needed

    def read(name: str, value: Any) -> Any:
        kind = cast("str | None", function.__annotations__.get(name))
        if kind is None:  # no such argument, which Python says
            return value
        if name not in readers:
            readers[name] = _reader(kind)
        found = readers[name](value)
        if found is WRONG:
            from foretell.errors import BadInput

            raise BadInput(f"{name} cannot be {_told(value)}", where=name, fix=EXAMPLES.get(name) or WORDS[kind])
        return found

    @functools.wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> R:
        trust.trust(*_texts((*given, *named.values())))  # code that a program names itself may run
        placed = [read(name, value) for name, value in zip(names, given, strict=False)]
        more = {name: read(name, value) for name, value in _renamed(named, function.__annotations__).items()}
        return cast("Callable[..., R]", function)(*placed, *given[len(names) :], **more)

    return called


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """Texts among what a function was given, those of lists too."""
    for value in values:
        if isinstance(value, str | PathLike):
            yield str(cast("str | PathLike[str]", value))
        elif isinstance(value, list | tuple):
            yield from _texts(cast("list[Any]", value))


def _renamed(named: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names that they have now."""
    found: dict[str, Any] = {}
    for name, value in named.items():
        now = FORMERLY.get(name, name)
        if name not in known and now in known and now not in named:
            import warnings

            warnings.warn(f"the argument {name} is now {now}", DeprecationWarning, stacklevel=3)
            name = now
        found[name] = value
    return found


MOST_SHOWN: Final = 60


def _told(value: Any) -> str:
    """A value as it was written, or what it is where that is long."""
    text, kind = repr(value), type(value).__name__
    if len(text) <= MOST_SHOWN:
        return text
    if isinstance(value, list | tuple):
        return f"a {kind} of {', '.join(sorted({type(one).__name__ for one in cast('list[Any]', value)}))}"
    return f"a {kind}"


# readers

SEVERAL: Final = "Sequence["


def knows(annotation: str) -> bool:
    """Whether all that an annotation says can be read: plain types, lists, values of the package."""
    found = (_inside(part) if part.startswith(SEVERAL) else [part] for part in _parts(annotation))
    return all(one in _KINDS or re.fullmatch(r"[A-Z][A-Za-z]+", one) for parts in found for one in parts)


def _parts(annotation: str) -> list[str]:
    """The alternatives of `str | Sequence[str | int]`, those in brackets left together."""
    parts, depth = [""], 0
    for word in annotation.split(" | "):
        parts[-1] += f" | {word}" if depth else word
        depth += word.count("[") - word.count("]")
        parts += [] if depth else [""]
    return parts[:-1]


def _inside(part: str) -> list[str]:
    """What a list may have in it."""
    return _parts(part.removeprefix(SEVERAL).removesuffix("]"))


def _reader(annotation: str) -> Reader:
    """What reads `str | PathLike[str] | Sequence[int]`: the first of these that it is."""
    parts = _parts(annotation)
    readers = [_several(part) if part.startswith(SEVERAL) else _KINDS.get(part) or _value(part) for part in parts]

    def read(value: Any) -> Any:
        found = (reader(value) for reader in readers)
        return next((one for one in found if one is not WRONG), WRONG)

    return read


def _several(part: str) -> Reader:
    """A list, or anything else that can be gone through; a text is not one."""
    each = _reader(" | ".join(_inside(part)))

    def read(value: Any) -> Any:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return WRONG
        found = tuple(each(one) for one in cast("Iterable[Any]", value))
        return WRONG if any(one is WRONG for one in found) else found

    return read


def _whole(value: Any) -> Any:
    """numpy's too."""
    try:
        return WRONG if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return WRONG


def _number(value: Any) -> Any:
    try:
        return WRONG if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return WRONG


def _of(kind: type) -> Reader:
    return lambda value: value if isinstance(value, kind) else WRONG


def _value(name: str) -> Reader:
    """A value of the package, known by the name of its type: no part of it is imported for those who bring none."""

    def read(value: Any) -> Any:
        kinds = type(value).__mro__
        return value if any(one.__name__ == name and one.__module__.startswith("foretell.") for one in kinds) else WRONG

    return read


_KINDS: Final[Mapping[str, Reader]] = {
    "str": _of(str),
    "PathLike[str]": _of(PathLike),
    "bool": _of(bool),
    "int": _whole,
    "float": _number,
    "None": _of(type(None)),
    "Any": lambda value: value,
}
