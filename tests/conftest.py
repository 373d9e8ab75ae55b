"""No limits of time (they belong to benchmarks), no records of the person who runs them; what takes long is marked."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

_RECORDS = tempfile.TemporaryDirectory(prefix="foretell-records-")  # goes with the process
os.environ["FORETELL_RECORDS"] = _RECORDS.name
"""What the person who runs the tests has calibrated changes no answer."""

QUIET = [HealthCheck.too_slow]
settings.register_profile("explore", deadline=None, suppress_health_check=QUIET, max_examples=60)
settings.register_profile("foretell", settings.get_profile("explore"), derandomize=True)
settings.load_profile("foretell")  # the same cases each time; new ones with --hypothesis-profile=explore

SLOW = (
    "tests/zoo/",
    "tests/docs/",
    "tests/judge/",
    "tests/torchrun/",
    "tests/laws/test_schedules_torch",
    "tests/laws/test_search",
    "tests/laws/test_recurrence",
    "tests/unit/test_torch_",
    "tests/unit/test_module_parts",
    "tests/unit/test_hf_config",
)
"""Folders and files whose tests build real modules or start processes; `make fast` leaves them out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
