"""No limits of time (they belong to benchmarks), no records of the person who runs them; what takes long is marked."""

import functools
import gc
import os
import re
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from foretell.trust import trust
from law_examples import DEFAULT, REACHED

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # workers share the cores: threads that spin for them take most of the time

os.environ["FORETELL_TRACEBACK"] = "1"  # a crash in a test is a traceback, not a file in the temporary folder
os.environ["FORETELL_SECONDS"] = "0"  # a slow machine answers later, not otherwise

_HOME = tempfile.TemporaryDirectory(prefix="foretell-home-")  # goes with the process
os.environ["FORETELL_RECORDS"] = f"{_HOME.name}/records"
os.environ["XDG_DATA_HOME"] = f"{_HOME.name}/data"
"""What the person who runs the tests has calibrated changes no answer, and no test adds to it: processes that are
started find the folder too, and what forgets it lands where `no_records_elsewhere` looks."""

for _file in (
    Path(__file__).parent / name for name in ("data/factories.py", "data/hf_factories.py", "torchrun/small_cnn.py")
):
    for _name in re.findall(r"^(?:def |class )?(\w+)(?=\(| =|:)", _file.read_text(), re.MULTILINE):
        trust(f"{_file}:{_name}")  # factories that tests name without a command line

QUIET = [HealthCheck.too_slow]
settings.register_profile("nightly", deadline=None, suppress_health_check=QUIET, max_examples=10 * DEFAULT)
settings.register_profile("foretell", settings.get_profile("nightly"), derandomize=True, max_examples=DEFAULT)
settings.load_profile("foretell")  # the same cases each time; more, and new ones, with --hypothesis-profile=nightly


@pytest.fixture(scope="session", autouse=True)
def no_records_elsewhere() -> Iterator[None]:
    yield
    strays = sorted(Path(os.environ["XDG_DATA_HOME"]).rglob("*"))
    assert not strays, f"a test wrote where it would have been the user's own store: {strays}"


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


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: looking through them for garbage again and again took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a law that checked less than half of its examples, or a branch of it too seldom."""
    law = getattr(getattr(item, "obj", None), "hypothesis", None)
    if law is None:
        return (yield)
    inner, checked = law.inner_test, 0

    @functools.wraps(inner)
    def counted(*arguments: object, **named: object) -> None:
        nonlocal checked
        inner(*arguments, **named)
        checked += 1

    REACHED.clear()
    law.inner_test = counted
    try:
        result = yield
    finally:
        law.inner_test = inner
    asked = getattr(item.obj, "_hypothesis_internal_use_settings", settings.default).max_examples
    all_there_are = "nothing left to do" in getattr(item, "hypothesis_statistics", "")
    assert all_there_are or checked >= asked / 2, f"{checked} examples of {asked} were checked"
    for mark in item.iter_markers("reaches"):
        few = {branch: REACHED[branch] for branch, least in mark.kwargs.items() if REACHED[branch] < least}
        assert not few, f"reached too seldom: {few}, of {mark.kwargs}"
    return result
