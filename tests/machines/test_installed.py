"""The built distribution where nothing of us is: no source tree, no torch, the lowest declared versions."""

from __future__ import annotations

import fcntl
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foretell.version import __version__
from machines.distribution import ROOT, Ran, build, clean, download, install, lowest, pip, run, sources

pytestmark = pytest.mark.slow

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
ASKED = (TINY, "--on", "2xh100", "--batch", "8", "--plan", "dp2")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("no repository: which files are the sources is not known")
    return sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the lowest versions of what it needs, and nothing else: one for all processes of the tests."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "bare"
    shared.mkdir(exist_ok=True)
    folder, failed, made = shared / "environment", shared / "failed", shared / "made"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not failed.exists():
            fetched = download(shared / "packages", *lowest())
            failed.write_text((fetched.err.strip() or "pip said nothing") if fetched.code else "")
        if why := failed.read_text():
            pytest.skip(f"the lowest versions could not be fetched: {why.splitlines()[-1]}")
        if not made.exists():
            installed = install(folder, "--no-index", "--find-links", shared / "packages", wheel, *lowest())
            assert installed.code == 0, installed.err
            made.touch()
    return folder


@pytest.fixture
def foretell(environment: Path, tmp_path: Path) -> Callable[..., Ran]:
    """The installed command in an empty folder, with a home of its own."""
    folder, home = tmp_path / "empty", tmp_path / "home"
    folder.mkdir()
    home.mkdir()

    def ask(*words: str) -> Ran:
        return run(environment / "bin" / "foretell", *words, folder=folder, environment=clean(home))

    return ask


def test_it_is_installed_with_the_lowest_versions(environment: Path, foretell: Callable[..., Ran]) -> None:
    listed = json.loads(pip(environment, "list", "--format", "json").out)
    versions = {one["name"].lower(): one["version"] for one in listed}
    assert set(versions) == {"foretell", "click", "msgspec", "numpy"}
    for wanted in lowest():
        name, _, version = wanted.partition("==")
        assert f"{versions[name]}.".startswith(f"{version}.")
    assert foretell("--version").out == f"foretell, version {__version__}\n"


ANSWERS: dict[str, tuple[str, ...]] = {
    "predict": ("predict", *ASKED),
    "plan": ("plan", TINY, "--on", "2xh100", "--batch", "8", "--only", "dp,tp"),
    "fit": ("fit", TINY, "--on", "2xh100"),
    "analyze": ("analyze", "lenet"),
    "program": ("program", *ASKED),
    "export": ("export", *ASKED, "--to", "torchtitan"),
    "list": ("list",),
    "describe": ("describe", "h100"),
    "doctor": ("doctor",),
    "results": ("results",),
    "schema": ("schema", "predict"),
    "validate": ("validate", "--limit", "2"),
    "sanity": ("validate", "--study", "sanity", "--table", "--limit", "2"),
    "coverage": ("validate", "--coverage", "--limit", "2"),
    "survey": ("bench", "--survey"),
    "engines": ("bench", "--list"),
    "simulate": ("simulate", "lenet", "--on", "4xv100-16", "--learn", "squares", "--workers", "2"),
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_it_answers(foretell: Callable[..., Ran], verb: str) -> None:
    ran = foretell(*ANSWERS[verb], "--json")
    assert (ran.code, ran.err.count("Traceback")) == (0, 0), ran.err
    assert isinstance(json.loads(ran.out), dict)


def test_it_is_helpful_alone_and_when_it_is_asked_wrongly(foretell: Callable[..., Ran]) -> None:
    alone = foretell()
    assert "predict" in alone.out + alone.err and "Traceback" not in alone.err
    wrong = foretell("predict", "gpt2", "--onn", "8xh100")
    assert wrong.code == 2 and "--on" in wrong.err and "Traceback" not in wrong.err


MISSING: dict[str, tuple[str, ...]] = {
    "run": ("run", TINY, "--plan", "dp2", "--batch", "4"),
    "bench": ("bench", "--quick"),
    "torch": ("calibrate", "--quick"),
    "torch, to profile": ("profile", "lenet"),
    "torch, to trace": ("analyze", "mine.py:build"),
    "run, to learn": ("simulate", "lenet", "--on", "4xv100-16", "--workers", "2", "--algorithms", "sync"),
    "serve": ("serve",),
    "ray": ("sweep", "--engine", "ray", "--model", TINY, "--on", "2xh100", "--batch", "8", "--plan", "dp2"),
    "table": ("results", "--to", "table.parquet"),
    "yaml": ("export", *ASKED, "--to", "accelerate"),
    "png": ("report", *ASKED, "--html", "r.html", "--png", "figures"),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_needs_more_names_the_extra(foretell: Callable[..., Ran], tmp_path: Path, case: str) -> None:
    (tmp_path / "empty" / "mine.py").write_text("def build():\n    import torch\n    return torch.nn.Linear(2, 2)\n")
    ran = foretell(*MISSING[case], "--json")
    assert ran.code == 2 and "Traceback" not in ran.err, ran.err
    assert f"pip install 'foretell[{case.partition(',')[0]}]'" in json.loads(ran.out)["error"]["fix"]


def test_extras_that_are_named_exist(environment: Path) -> None:
    told: Any = run(environment / "bin" / "foretell", "doctor", "--json", folder=ROOT).out
    code = "from importlib.metadata import metadata; print(*metadata('foretell').get_all('Provides-Extra'))"
    extras = run(environment / "bin" / "python", "-c", code, folder=ROOT).out.split()
    commands = [one["get"] for one in json.loads(told)["findings"] if "[" in one["get"]]
    assert commands and all(one.partition("[")[2].partition("]")[0] in extras for one in commands)


def test_the_archive_of_sources_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    archive = build("sdist", source, tmp_path / "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "sources", filter="data")
    (unpacked,) = (tmp_path / "sources").iterdir()
    again = build("wheel", unpacked, tmp_path / "again")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        digests = [{one.filename: one.CRC for one in opened.infolist()} for opened in (first, second)]
    assert digests[0] == digests[1]
    assert {name.partition("/")[0] for name in digests[0]} == {"foretell", f"foretell-{__version__}.dist-info"}
