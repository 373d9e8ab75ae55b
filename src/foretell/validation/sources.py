"""Where measured runs come from: what is left out together when bands are tried on a source they never saw."""

from __future__ import annotations

from typing import Final

from foretell.validation.study import MeasuredRun

FAULT: Final = "cluster fault"
"""Runs that met a fault of their cluster teach nothing; they are counted apart."""

OTHERWISE: Final = "failed otherwise"
"""Failures that memory does not explain: a run of the source that needs at least as much finished."""

TOGETHER: Final = {
    **dict.fromkeys(("pdlf", "pdll", "pdlt", "paradl"), "pdl"),
    **dict.fromkeys(("timm", "timmn", "timm10", "timm11"), "timm"),
    **dict.fromkeys(("mlp", "mlq"), "mlp"),
    **dict.fromkeys(("dle", "nvidia-dle-bert"), "dle"),
    **dict.fromkeys(("vtrain_single", "vtrain_multi"), "vtrain"),
    **dict.fromkeys(("measured", "second", "unseen", "compiled"), "h200_steps"),
}
"""Tables of one paper, or runs of one machine and software: left out together."""

BY_SOURCE: Final = ("llm", "finetune", "cnn")
"""Families whose files collect runs of many sources, which their first subset names."""


def table_of(family: str, study: str, row: MeasuredRun) -> str:
    """Whose table a run stands in: the study, or what the study took it from."""
    return row.subsets[0] if family in BY_SOURCE and row.subsets else study


def source_of(family: str, study: str, row: MeasuredRun) -> str:
    """Who measured a run: tables of one paper are one source."""
    table = table_of(family, study, row)
    return TOGETHER.get(table, table)


def healthy(row: MeasuredRun) -> bool:
    """Whether it met no fault of its cluster that is known."""
    return FAULT not in row.subsets


def by_memory(row: MeasuredRun) -> bool:
    """Whether that a run ran or failed says something of its memory."""
    return OTHERWISE not in row.subsets
