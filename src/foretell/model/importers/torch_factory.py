# pyright: basic
"""From `path/to/file.py:factory` or `package.module:factory` to a module and its inputs.

A factory takes no arguments, or `batch` and `seq`, and returns

    module                      with inputs from `example_inputs`, of the module or of the file
    module, inputs              a tensor, a tuple of arguments or a dict of keyword arguments
    module, inputs, loss        and a function from the module's output to one number
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from foretell import trust
from foretell.errors import BadInput, unknown
from foretell.model.importers import hf_classes, packages
from foretell.model.importers.torch_failure import failure
from foretell.model.importers.torch_fake import building

RETURNS = "return (module, inputs) or (module, inputs, loss); inputs are a tensor, a tuple or a dict of keywords"
TOKENS, IMAGE = 512, 224
"""The sequence and image that modules with well-known arguments are given, if nothing says otherwise."""


class Built(NamedTuple):
    """What a factory returned, with inputs found."""

    module: torch.nn.Module
    inputs: Any
    loss: Callable[[Any], torch.Tensor] | None


def find(spec: str) -> tuple[Any, ModuleType]:
    """The factory that a text names, and the file that it is in. All code of other people comes in here."""
    place, _, name = spec.rpartition(":")
    of_package = spec.startswith(tuple(f"{one}/" for one in packages.PACKAGES)) and not place.endswith(".py")
    if of_package and (package := packages.parse(spec)) is not None:
        from foretell.model.importers import torch_packages

        return torch_packages.factory(package)
    if spec.startswith(hf_classes.PREFIX):
        from foretell.model.importers import torch_transformers

        return torch_transformers.factory(spec)
    trust.check(spec)
    if not place:
        raise BadInput(f"{spec} names a file, and nothing in it", where=spec, fix=f"{spec}:function")
    try:
        home = _from_file(Path(place)) if place.endswith(".py") else _from_package(place)
    except ModuleNotFoundError as problem:
        if problem.name and (place == problem.name or place.startswith(f"{problem.name}.")):
            fix = "the path of a .py file, or a module that `import` finds from here"
            raise BadInput(f"no module is called {problem.name!r}", where=spec, fix=fix) from None
        raise failure(problem, spec) from None
    except (Exception, SystemExit) as problem:
        raise failure(problem, spec) from None
    found: Any = home
    for part in name.split("."):
        if not hasattr(found, part):
            own = [key for key, value in vars(home).items() if callable(value) and not key.startswith("_")]
            raise unknown(f"factory in {place}", name, own).within(spec)
        found = getattr(found, part)
    return found, home


def _from_package(name: str) -> ModuleType:
    """A module that is installed, or else lies in the folder of the person who typed it."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        sys.path.append(str(Path.cwd()))
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadInput(f"no such file: {path}", fix="path/to/file.py:factory")
    sys.path.append(str(path.parent.resolve()))  # last: a numpy.py that lies there is not numpy
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"not a Python file: {path}")
    home = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = home
    spec.loader.exec_module(home)
    return home


def build(
    factory: Any, home: ModuleType, batch: int | None, seq: int | None, spec: str
) -> tuple[Built, FakeTensorMode]:
    """Call the factory: with fake tensors, else without memory on the meta device, else for real."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    first: BaseException | None = None
    for way in (mode, torch.device("meta"), None):
        try:
            with building():
                if way is None:
                    return _called(factory, home, batch, seq, spec), mode
                with way:
                    return _called(factory, home, batch, seq, spec), mode
        except BadInput:
            raise
        except (Exception, SystemExit) as problem:
            last = problem
            if first is not None and repr(problem) == repr(first):
                break  # it is the factory's own error: building for real would only cost memory
            first = first or problem
    shown = last if type(last) is type(first) else first
    raise failure(shown or last, spec) from None


def real(spec: str, batch: int | None, seq: int | None) -> Built:
    """What a text names, built with real weights: to be run, not traced."""
    factory, home = find(spec)
    return _called(factory, home, batch, seq, spec)


def _called(factory: Any, home: ModuleType, batch: int | None, seq: int | None, spec: str) -> Built:
    if isinstance(factory, torch.nn.Module):
        made: Any = factory
    elif callable(factory):
        made = factory(**_wanted(factory, batch, seq))
    else:
        raise BadInput(f"{spec} is a {type(factory).__name__}, not a function", fix=RETURNS)
    parts = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise BadInput(f"the factory returned {kinds or 'nothing'}, not a module", where=spec, fix=RETURNS)
    module = parts[0]
    for loss in parts[2:]:
        if not callable(loss):
            raise BadInput(f"the loss is a {type(loss).__name__}, not a function", where=spec, fix=RETURNS)
    inputs = parts[1] if len(parts) > 1 else _example(module, home, batch, seq, spec)
    return Built(module, _resized(inputs, batch, seq), parts[2] if len(parts) == 3 else None)


def _wanted(function: Any, batch: int | None, seq: int | None) -> dict[str, int]:
    """The arguments that a function has a place for, of those that were given."""
    try:
        places = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    asked = {"batch": batch, "seq": seq}
    required = [
        name
        for name, place in places.items()
        if place.default is place.empty
        and place.kind not in (place.VAR_POSITIONAL, place.VAR_KEYWORD)
        and name not in asked
    ]
    if required:
        what = f"the factory needs arguments that nobody gives: {', '.join(required)}"
        raise BadInput(what, fix="a function without arguments (it may take batch and seq)")
    needed = {name: 1 if name == "batch" else TOKENS for name in asked if name in places}
    return {
        name: asked[name] or needed[name]
        for name in needed
        if asked[name] is not None or places[name].default is places[name].empty
    }


def _example(module: torch.nn.Module, home: ModuleType, batch: int | None, seq: int | None, spec: str) -> Any:
    """Inputs of a module that came without: its own, its file's, or by well-known argument names."""
    for place in (module, home):
        found = getattr(place, "example_inputs", None)
        if callable(found) and not isinstance(found, torch.Tensor):
            return found(**_wanted(found, batch, seq))
        if found is not None:
            return found
    known = _well_known(module, batch or 1, seq)
    if known is not None:
        return known
    arguments = ", ".join(inspect.signature(module.forward).parameters)
    what = f"no example inputs of {type(module).__name__}.forward({arguments})"
    raise BadInput(what, where=spec, fix=RETURNS)


def _well_known(module: torch.nn.Module, batch: int, seq: int | None) -> dict[str, torch.Tensor] | None:
    """Inputs for modules whose arguments say what they are (those of Hugging Face)."""
    arguments = inspect.signature(module.forward).parameters
    config: Any = getattr(module, "config", None)
    if "input_ids" in arguments:
        longest = getattr(config, "max_position_embeddings", None) or TOKENS
        tokens = torch.zeros(batch, seq or min(TOKENS, longest), dtype=torch.int64)
        return {name: tokens.clone() for name in ("input_ids", "labels") if name in arguments}
    if "pixel_values" in arguments:
        side = getattr(config, "image_size", None) or IMAGE
        height, width = (side, side) if isinstance(side, int) else side
        image = torch.zeros(batch, getattr(config, "num_channels", 3), height, width)
        labels = {"labels": torch.zeros(batch, dtype=torch.int64)} if "labels" in arguments else {}
        return {"pixel_values": image, **labels}
    return None


def _resized(inputs: Any, batch: int | None, seq: int | None) -> Any:
    """The inputs with the batch and sequence that were asked for, whatever the factory made."""
    tensors = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.dim() > 0]
    if not tensors:
        return inputs
    rows = tensors[0].shape[0]
    lengths = [t.shape[1] for t in tensors if t.dim() > 1 and not t.is_floating_point()]

    def resize(tensor: torch.Tensor) -> torch.Tensor:
        shape = list(tensor.shape)
        if batch is not None and shape and shape[0] == rows:
            shape[0] = batch
        if seq is not None and lengths and len(shape) > 1 and shape[1] == lengths[0]:
            shape[1] = seq
        return tensor if shape == list(tensor.shape) else tensor.new_zeros(shape)

    mapped = tree_map_only(torch.Tensor, resize, inputs)
    return dict(mapped) if isinstance(mapped, Mapping) else mapped
