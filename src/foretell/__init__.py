"""foretell tells how a training run will go before you rent the GPUs, and then proves it."""

from __future__ import annotations

from foretell.functions.models import analyze, load, trace
from foretell.functions.plans import export, fit, lower, predict
from foretell.functions.runs import run, simulate
from foretell.functions.searches import choose_batch, diff, scale, search, sweep, whatif, why
from foretell.version import __version__

__all__ = [
    "__version__",
    "analyze",
    "choose_batch",
    "diff",
    "export",
    "fit",
    "load",
    "lower",
    "predict",
    "run",
    "scale",
    "search",
    "simulate",
    "sweep",
    "trace",
    "whatif",
    "why",
]
