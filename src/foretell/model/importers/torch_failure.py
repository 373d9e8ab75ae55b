# pyright: basic
"""What went wrong in a user's program, told by its own last line."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from foretell.errors import ForetellError, TraceFailed

TORCH = str(Path(torch.__file__).parent)
OURS = tuple(str(Path(__file__).parents[2] / name) for name in ("model/importers", "runtime"))
PYTHON = str(Path(traceback.__file__).parent)
LONGEST = 400


def failure(problem: BaseException, where: str = "", module: torch.nn.Module | None = None) -> ForetellError:
    """The error of a program that could not be traced; one of ours stays as it is."""
    if isinstance(problem, ForetellError):
        return problem.within(where)
    text = " ".join(str(problem).split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    what = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    places = [place for place in (_place(problem), _module(problem, module), where) if place]
    return TraceFailed(what, where=", ".join(dict.fromkeys(places)), fix=_fix(problem, text))


def _place(problem: BaseException) -> str:
    """file:line of the last frame that is neither Python's, PyTorch's nor ours."""
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not frame.filename.startswith((TORCH, *OURS, "<"))
        and (not frame.filename.startswith(PYTHON) or "site-packages" in frame.filename)
    ]
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"{problem.filename}:{problem.lineno}"
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""


def _module(problem: BaseException, module: torch.nn.Module | None) -> str:
    """The innermost part of the module that was running."""
    names = {id(part): name for name, part in module.named_modules() if name} if module is not None else {}
    running = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(problem.__traceback__)]
    inside = [names[id(part)] for part in running if id(part) in names]
    return f"module {inside[-1]}" if inside else ""


def _fix(problem: BaseException, text: str) -> str:
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        return f"pip install {problem.name.partition('.')[0]}"
    if "CUDA" in text or "cuda" in text:
        return "build the module on the CPU; where it will run is the plan's business"
    if "LazyModule" in text:
        return "call a lazy module once before you return it: until then it has no sizes"
    if "register_fake" in text or "fake impl" in text:
        return "tell the operator's output shape with @operator.register_fake"
    return ""
