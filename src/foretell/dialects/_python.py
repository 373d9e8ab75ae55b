"""Configurations that are Python: read from the syntax tree, never imported.

    Trainer.Config(parallelism=ParallelismConfig(tensor_parallel_degree=8))   parallelism.tensor_parallel_degree = 8
    config.model.tensor_model_parallel_size = 8                               model.tensor_model_parallel_size = 8

What is called stands under the key with `()` after it: `activation_checkpoint.()` is `FullAC.Config`. Behind that is
what a function of another file was asked with: `model_spec.().converters`, of `model_registry(...)`. A function that
begins with what another function returns, and changes it, has the keys of both. Names that the file gives values, and
sums of numbers, are filled in. What depends on a condition that nobody knows, or on a loop, is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from foretell.dialects._formats import Code, FileFormat
from foretell.dialects._table import Document, Source
from foretell.dialects.python.follower import PythonFollower
from foretell.dialects.python.modules import ImportedModules, PythonModule
from foretell.dialects.python.values import NOTHING, FunctionHere, Listed, Made, PythonValue, code_of, measured, plain
from foretell.errors import BadInput

CALLED = "()"
GIVEN = "()."
"""How keys begin that were given to the outermost call, where it matters: in what is kept."""

IMPORTS = "import"
"""Where the imports of a file are kept: no field has this name."""


DEFINED = "def"
"""Where the name of the function is kept that a person named."""


def read(text: str, function: str = "", path: Path | None = None) -> Source:
    """The keys of the configuration that a file makes; `function` names the one that is meant of several.

    `path` is where the file lies: functions and constants that it imports from files beside it are followed there.
    """
    try:
        module = PythonModule(ast.parse(text), path)
        whole = PythonFollower(ImportedModules())
        understood = {key.removeprefix(GIVEN): value for key, value in _keys(module, function, whole).items()}
        raw = {key: Code(code) for key, code in _keys(module, function, PythonFollower(None), written=True).items()}
    except RecursionError:
        raise BadInput("expressions or values inside each other, too many to follow") from None
    except (SyntaxError, ValueError, MemoryError) as problem:
        raise BadInput(f"not Python: {problem}") from None
    understood |= {DEFINED: function} if function else {}
    understood[IMPORTS] = [ast.unparse(node) for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom)]
    imports = [Code(ast.unparse(node)) for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return Source(understood, raw | ({IMPORTS: imports} if imports else {}), notes=tuple(dict.fromkeys(whole.notes)))


def _keys(module: PythonModule, function: str, follower: PythonFollower, *, written: bool = False) -> Document:
    """Dotted keys with their values, or as they are written."""
    if function and function not in module.functions:
        raise BadInput(f"no function is called {function!r}", fix=", ".join(module.functions) or "none is there")
    follower.script(module)
    if function:
        return _flat(_made_by(module, function, follower), written)
    notes = list(follower.notes)
    found = {name: _made_by(module, name, follower) for name in module.functions}
    found = {name: made for name, made in found.items() if made is not None}
    follower.notes = notes if len(found) != 1 else follower.notes
    if len(found) > 1:
        names = list(found)
        fix = f"FILE.py:{names[0]}, or {', '.join(names[1:4])}"
        raise BadInput(f"{len(found)} functions make configurations", fix=fix)
    return _flat(_first(follower.outside), written) | _flat(next(iter(found.values()), None), written)


def _made_by(module: PythonModule, name: str, follower: PythonFollower) -> Made | None:
    """What a function makes: what it returns, or what it makes and leaves."""
    returned, names = follower.called(FunctionHere(module, module.functions[name], {}))
    if isinstance(returned, Made):
        return returned
    return _first(names) if returned is NOTHING else None


def _first(names: Mapping[str, PythonValue]) -> Made | None:
    """The first thing that is made and named, rather one that is changed afterwards, is the configuration."""
    made = [one for one in names.values() if isinstance(one, Made)]
    return next((one for one in made if one.touched), made[0] if made else None)


def _flat(made: Made | None, written: bool) -> Document:
    if made is None:
        return {}
    measured(made)
    return dict(_fields(made, "", given=True, written=written))


def _fields(made: Made, before: str, *, given: bool, written: bool) -> Iterator[tuple[str, Any]]:
    """Keys of what is made. What the outermost call was given begins so, unless it was set again later."""
    if made.made:
        yield f"{GIVEN if given and before else ''}{before}{CALLED}", made.made
    if before and made.asked and not written:
        asked = Made("", {name: one for name, one in made.asked.items() if not isinstance(one, Made)})
        yield from _fields(asked, f"{before}{GIVEN}", given=False, written=False)
    for name, value in made.fields.items():
        first = given and name not in made.later and bool(made.made or before)
        key = f"{before}{name}"
        if isinstance(value, Made):
            yield from _fields(value, f"{key}.", given=first, written=written)
            continue
        yield f"{GIVEN if first else ''}{key}", code_of(value) if written else plain(value)
        if isinstance(value, Listed) and not written:
            for place, one in enumerate(value.items):
                if isinstance(one, Made):
                    yield from _fields(one, f"{key}.{place}.", given=first, written=False)


# --- writing ------------------------------------------------------------------------------------


def assignments(
    name: str, before: Sequence[str], after: Sequence[str] = ()
) -> Callable[[Document, Sequence[str]], str]:
    """A writer of `name.key = value`, between these lines. Of `before`, the document's outermost call fills in {made},
    {last} without what stands before its last dot, and {given} with its arguments.
    """

    def write(document: Document, head: Sequence[str]) -> str:
        made = str(document.get(CALLED, "make_config"))
        given = ", ".join(_arguments(document, GIVEN, {}))
        lines = [f"# {line}".rstrip() for line in head]
        lines += _imports(document, before)
        lines += [line.format(made=made, last=made.split(".")[-1], given=given) for line in before]
        own = {key: value for key, value in document.items() if not key.startswith(CALLED) and key != IMPORTS}
        for key in dict.fromkeys(_whole(key, own) for key in own):
            lines.append(f"{name}.{key} = {_expression(own, key, {})}")
        return "\n".join([*lines, *after]) + "\n"

    return write


def _whole(key: str, document: Document) -> str:
    """The outermost call that a key is an argument of, or the key."""
    parts = key.split(".")
    starts = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next((one for one in starts if f"{one}.{CALLED}" in document), key)


def _imports(document: Document, known: Sequence[str]) -> list[str]:
    return [line for line in document.get(IMPORTS, []) if line not in known]


def calls(frame: str, classes: Mapping[str, str]) -> Callable[[Document, Sequence[str]], str]:
    """A writer of one call inside others: `classes` says what is called for a table of keys, `frame` what is around.

    {calls} of the frame is the arguments of the outermost call.
    """

    def write(document: Document, head: Sequence[str]) -> str:
        plain = {key.removeprefix(GIVEN): value for key, value in document.items() if key != CALLED}
        own = dict.fromkeys(key.partition(".")[0] for key in plain if key != IMPORTS)
        lines = [f"        {key}={_python(plain[key])}," for key in own if key in plain]
        for table in own:
            if table not in plain:
                inside = [f"            {one}," for one in _arguments(plain, f"{table}.", classes)]
                lines += [f"        {table}={_made(plain, table, classes)}(", *inside, "        ),"]
        comment = "".join(f"# {line}".rstrip() + "\n" for line in head)
        imports = "".join(f"\n{line}" for line in _imports(document, frame.splitlines()))
        return comment + imports + frame.replace("{calls}", "\n".join(lines))

    return write


def _arguments(document: Document, before: str, classes: Mapping[str, str]) -> list[str]:
    """What is given to the call whose keys begin so: first what has no name, last what is unpacked."""
    keys = [key.removeprefix(before) for key in document if key.startswith(before)]
    parts = [part for part in dict.fromkeys(key.partition(".")[0] for key in keys) if part != CALLED]
    parts.sort(key=lambda part: (not part.isdecimal(), part.startswith("**")))
    labels = {part: "" if part.isdecimal() else "**" if part.startswith("**") else f"{part}=" for part in parts}
    return [f"{label}{_expression(document, f'{before}{part}', classes)}" for part, label in labels.items()]


def _expression(document: Document, key: str, classes: Mapping[str, str]) -> str:
    if key in document:
        return _python(document[key])
    return f"{_made(document, key, classes)}({', '.join(_arguments(document, f'{key}.', classes))})"


def _made(document: Document, key: str, classes: Mapping[str, str]) -> str:
    made = document.get(f"{key}.{CALLED}") or classes.get(key)
    if not made:
        raise BadInput(f"the file does not say what makes {key}", fix=f"{key}=...(...) where the configuration is made")
    return str(made)


def _python(value: Any) -> str:
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_python, cast('list[Any]', value)))}]"
    return f'"{value}"' if isinstance(value, str) and '"' not in value and "\\" not in value else repr(value)


def python(write: Callable[[Document, Sequence[str]], str]) -> FileFormat:
    """Python of one dialect."""
    return FileFormat("Python", (".py",), read, write)
