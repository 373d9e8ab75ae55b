"""Modules of the tests' own are traced in this process: starting one that has torch takes seconds.

What a process of its own is for (modules that abort, hang or print) is tested in `unit/test_torch_load.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from foretell.model.importers import torch_load


@pytest.fixture(scope="module", autouse=True)
def traced_here() -> Iterator[None]:
    def asked(question: torch_load.TraceRequest, seconds: float) -> torch_load.TraceAnswer:
        from foretell.model.importers.torch_child import answer

        return answer(question.spec, question.batch, question.seq)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_load, "_asked", asked)
        yield
