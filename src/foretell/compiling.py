"""Compiling kernels: functions of numbers that run as they are, on lists, or compiled, on arrays, where numba is there.

`kernel` marks them. A file of kernels is loaded a second time with `kernel` as numba's compiler: so there is one text,
and no function is changed that somebody has imported. Kernels that a file imports from another file of kernels are
compiled with it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from foretell.files import only_ours, own_folder

Function = TypeVar("Function", bound=Callable[..., Any])

FOLDERS = ("plan", "timeline")
"""Where kernels are."""

CACHE: Final = "NUMBA_CACHE_DIR"
"""The variable with which a person names the folder for compiled functions."""

_compiler: list[Callable[[Any], Any]] = []


def kernel(function: Function) -> Function:
    """A function of numbers and indexing alone."""
    if _compiler:
        return _compiler[-1](function)
    vars(function)["is_kernel"] = True
    return function


def zeros(count: int) -> Any:
    """So many real numbers. Compiled functions get an array instead."""
    return [0.0] * count


def whole_zeros(count: int) -> Any:
    """So many whole numbers."""
    return [0] * count


def real_row(count: int, array: bool) -> Any:
    """So many real numbers for a kernel to write to: Python needs no compiled `zeros` for that."""
    return _zeros(count, "float64") if array else zeros(count)


def whole_row(count: int, array: bool) -> Any:
    """So many whole numbers, likewise."""
    return _zeros(count, "int64") if array else whole_zeros(count)


def _zeros(count: int, kind: str) -> Any:
    import numpy

    return numpy.zeros(count, kind)


def unsigned_index(number: int) -> Any:
    """A place that is never counted from the end, as negative ones are: compiled, loops over such places take several
    at a time."""
    return number


@functools.cache
def available() -> bool:
    """Whether there is a compiler, and a folder for what it makes: compiling anew in each process takes too long."""
    return importlib.util.find_spec("numba") is not None and cache_folder() is not None


def was_compiled() -> bool:
    """Whether functions were compiled and kept on this machine before: the first time takes a minute of a core."""
    folder = cache_folder()
    return folder is not None and any(folder.rglob("*.nbc"))


def loaded(name: str) -> bool:
    """Whether a module of kernels is compiled in this process already: loading takes longer than a few plans."""
    return f"{name}_compiled" in sys.modules


@functools.cache
def compiled(name: str) -> ModuleType:
    """A module of kernels with its functions compiled; they are kept on disk from one process to the next."""
    import numba
    import numpy

    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    spec = importlib.util.spec_from_file_location(f"{name}_compiled", found.origin)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with _compiling(lambda function: _kept(numba.njit(cache=True)(function))):
        spec.loader.exec_module(module)
        _array_of(module, "zeros", numpy.float64)
        _array_of(module, "whole_zeros", numpy.int64)
        _unsigned(module, "unsigned_index")
    for other, value in list(
        vars(module).items()
    ):  # functions are compiled when they are first called, so they find these
        if getattr(value, "is_kernel", False):
            setattr(module, other, getattr(compiled(value.__module__), value.__name__))
    return module


def _array_of(module: ModuleType, name: str, kind: Any) -> None:
    import numpy

    def array(count: int) -> Any:
        return numpy.zeros(count, kind)

    _add(module, name, array)


def _unsigned(module: ModuleType, name: str) -> None:
    import numpy

    def unsigned(number: int) -> Any:
        return numpy.uint64(number)

    _add(module, name, unsigned)


def _add(module: ModuleType, name: str, function: Callable[[int], Any]) -> None:
    """Compile a function made here as one of a module, with a name of its own: numba names what it keeps on disk by the
    function's name and a number that each process counts anew, and of two with one name takes one for the other."""
    function.__qualname__ = f"{module.__name__}.{name}"
    setattr(module, name, kernel(function))


def _kept(dispatcher: Any) -> Any:
    """A compiled function whose kept form, where that is cut off or the disk is full, is as none: it is made anew."""
    cache = getattr(dispatcher, "_cache", None)
    if cache is None:  # NUMBA_DISABLE_JIT: nothing is compiled
        return dispatcher
    load, save = cache.load_overload, cache.save_overload

    def load_or_none(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context)
        except Exception:  # whatever unpickling half a file raises
            with contextlib.suppress(OSError):
                cache.flush()
            return None

    def save_or_not(signature: Any, made: Any) -> None:
        with contextlib.suppress(OSError):
            save(signature, made)

    cache.load_overload, cache.save_overload = load_or_none, save_or_not
    return dispatcher


@contextmanager
def _compiling(compiler: Callable[[Any], Any]) -> Generator[None]:
    config: Any = importlib.import_module("numba").config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder() or before)
    _compiler.append(compiler)
    try:
        yield
    finally:
        _compiler.pop()
        config.CACHE_DIR = before


@functools.cache
def cache_folder() -> Path | None:
    """Where compiled functions are kept: a folder for each text of all kernels; None where nothing can be written.

    Numba takes a kept function for current if its own file is, though it may call one of a file that has changed.
    """
    here = Path(__file__).parent
    texts = [path.read_bytes() for folder in FOLDERS for path in sorted((here / folder).glob("*.py"))]
    name = f"kernels-{hashlib.sha256(b''.join(text for text in texts if b'@kernel' in text)).hexdigest()[:16]}"
    given = os.environ.get(CACHE, "")
    places = [Path(given)] if given else []
    places.append(here / "__pycache__" / name)
    with contextlib.suppress(OSError):  # no folder for temporary files either
        places.append(Path(tempfile.gettempdir()) / f"foretell-{os.getuid()}-{name}")
    return next((place for place in places if _is_ours(place)), None)


def _is_ours(folder: Path) -> bool:
    """Whether we can write to a folder and nobody else can: what is kept there is code."""
    try:
        own_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return only_ours(folder)
