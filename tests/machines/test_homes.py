"""Homes and installations that cannot be written, as Apptainer and Kubernetes have them; what is kept is private."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from foretell import compiling
from foretell.errors import BadInput
from foretell.files import PRIVATE, PRIVATE_FOLDER, is_folder
from foretell.records import store
from foretell.records.home import cache_home, home
from foretell.records.record import record
from foretell.scratch import scratch
from machines.distribution import ROOT, Ran, clean, run

pytestmark = pytest.mark.slow

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
PREDICT = ("predict", TINY, "--on", "2xh100", "--batch", "8", "--plan", "dp2")
PLAN = ("plan", TINY, "--on", "2xh100", "--batch", "8", "--only", "dp,tp")
RESULTS = ("results", "--json")

READ_ONLY = (
    'for place in "$0" "$HOME" /tmp /var/tmp /dev/shm; do'
    ' mount --bind "$place" "$place" && mount -o remount,ro,bind "$place" || exit 1; done; cd "$0" && exec "$@"'
)
"""Folders that this one process, and no other, cannot write to, though it is root."""


def asked(*words: str, before: tuple[str, ...] = (), folder: Path = ROOT, **variables: str) -> Ran:
    """The command from the source tree; a variable that is empty is not set."""
    given = {
        **clean(Path("/nonexistent")),
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **variables,
    }
    environment = {name: value for name, value in given.items() if value}
    return run(*before, sys.executable, "-m", "foretell", *words, folder=folder, environment=environment)


@pytest.mark.parametrize("words", [PREDICT, PLAN, RESULTS], ids=lambda words: words[0])
@pytest.mark.parametrize("where", ["/nonexistent", "/proc", ""])
def test_homes_that_are_none(words: tuple[str, ...], where: str) -> None:
    ran = asked(*words, HOME=where, XDG_DATA_HOME=where and f"{where}/data", TMPDIR="/nonexistent")
    assert ran.code == 0 and ran.out, ran.err


def test_a_user_that_nobody_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes starts containers under numbers that no list has: Python knows no home then."""

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FORETELL_RECORDS", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", none)
    assert not is_folder(home()) and not is_folder(cache_home())


def test_a_home_of_somebody_else(tmp_path: Path) -> None:
    """Root sees everything: it asks as another user where it can."""
    closed = tmp_path / "closed"
    (closed / "records").mkdir(parents=True)
    closed.chmod(0)
    tmp_path.chmod(0o755)
    code = "import os, sys; from pathlib import Path; from foretell.files import is_folder\n"
    code += "if not os.getuid():\n    try: os.setuid(65534)\n    except OSError: sys.exit(77)\n"
    code += "print(is_folder(Path(sys.argv[1])))"
    ran = run(sys.executable, "-c", code, closed / "records", folder=ROOT)
    closed.chmod(0o700)
    if ran.code == 77:
        pytest.skip("root here can become nobody else")
    assert ran.out == "False\n", ran.err


def test_a_record_that_cannot_be_kept_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_RECORDS", "/proc/records")
    with pytest.raises(BadInput, match=r"cannot be written[^$]*FORETELL_RECORDS"):
        store.write(home(), record("run", {}))


def test_where_nothing_is_for_a_moment_it_is_said_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", none)
    with pytest.raises(BadInput, match="TMPDIR="), scratch("run"):
        pass


def test_what_is_kept_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written = store.write(tmp_path / "share" / "foretell" / "records", record("run", {}))
    finally:
        os.umask(before)
    assert stat.S_IMODE(written.stat().st_mode) == PRIVATE
    for folder in list(written.relative_to(tmp_path).parents)[:-1]:
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == PRIVATE_FOLDER


@pytest.mark.skipif(not compiling.available(), reason="no compiler")
def test_a_search_where_nothing_can_be_written(tmp_path: Path) -> None:
    """The package, the home and every folder for temporary files are read-only; numba finds no place for its cache."""
    code = "import foretell.compiling as c; from foretell.cli import main; assert not c.available(); main()"
    mounted = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(ROOT)]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    environment = {**clean(Path.home()), "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = run(*mounted, sys.executable, "-c", code, *PLAN, folder=ROOT, environment=environment)
    assert ran.code == 0 and "recommended" in ran.out, ran.err


def test_a_folder_that_others_could_write_keeps_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv(compiling.CACHE, str(shared))
    assert compiling.cache_folder.__wrapped__() != shared
    shared.chmod(0o700)
    assert compiling.cache_folder.__wrapped__() == shared
