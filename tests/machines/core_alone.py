"""A plugin of pytest: files of tests that import what this environment does not have are left out, and counted."""

from __future__ import annotations

from collections.abc import Generator

import pytest

LEFT_OUT = (
    "torch",
    "transformers",
    "sklearn",
    "starlette",
    "uvicorn",
    "ray",
    "accelerate",
    "playwright",
    "schemathesis",
)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    said = str(report.longrepr)
    missing = [name for name in LEFT_OUT if f"No module named '{name}" in said]
    if report.failed and missing:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: needs {missing[0]}")
    return report
