"""Advice stands beside an answer and never takes it down.

What would fit, which hardware would help, which plan is near: each is found by building and predicting plans that
nobody asked for. Some of them cannot be written, placed or priced. Whoever gives advice runs it through `harmless`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from foretell.errors import ForetellError

T = TypeVar("T")


class AdviceFailed(RuntimeWarning):
    """Advice ended early, for a reason that is a mistake of this program. The answer holds."""


def harmless(found: Callable[[], Iterable[T]]) -> Iterator[T]:
    """What advice finds, as far as it comes: whatever goes wrong ends the advice and leaves the answer."""
    try:
        yield from found()
    except ForetellError:  # a plan, a cluster or a batch that there is not
        return
    except Exception as problem:  # the answer is right all the same; tests turn the warning into an error
        warnings.warn(f"advice ended early: {type(problem).__name__}: {problem}", AdviceFailed, stacklevel=2)
