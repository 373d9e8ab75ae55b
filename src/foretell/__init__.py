"""foretell tells how a training run will go before you rent the GPUs, and then proves it.

The functions are the verbs of the command line. Each is imported when it is asked for: `import foretell` alone costs
next to nothing, and nothing that Python itself has not imported: `python -m foretell` looks in the folder that it is
started in until `__main__` runs.
"""

import importlib

from foretell.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from foretell.functions.models import analyze, load, trace
    from foretell.functions.plans import export, fit, predict, program
    from foretell.functions.runs import run, simulate
    from foretell.functions.searches import choose_batch, diff, plan, scale, sweep, whatif, why

__all__ = [
    "__version__",
    "analyze",
    "choose_batch",
    "diff",
    "export",
    "fit",
    "load",
    "plan",
    "predict",
    "program",
    "run",
    "scale",
    "simulate",
    "sweep",
    "trace",
    "whatif",
    "why",
]

_HOMES = {
    "models": ("analyze", "load", "trace"),
    "plans": ("export", "fit", "predict"),
    "runs": ("run", "simulate"),
    "searches": ("choose_batch", "diff", "scale", "sweep", "whatif", "why"),
}
"""The modules of `foretell.functions`, and what each has. `plan` and `program` are packages that can be called."""

_FORMERLY = {"search": "plan", "lower": "program"}
"""Names of before, that work until the next release."""


def __getattr__(name: str) -> "Any":
    if name in _FORMERLY:
        import warnings

        warnings.warn(f"foretell.{name} is now foretell.{_FORMERLY[name]}", DeprecationWarning, stacklevel=2)
        return __getattr__(_FORMERLY[name])
    if name in ("plan", "program"):
        return importlib.import_module(f"foretell.{name}")
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(f"foretell.functions.{home}"), name)
            return found
    raise AttributeError(f"module 'foretell' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
