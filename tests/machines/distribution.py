"""The distribution as others get it: built, and installed into environments that have nothing of the source tree.

python tests/machines/distribution.py lowest      the tests of the core with the lowest versions that are declared
python tests/machines/distribution.py newest      the same with the newest that the registry has
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

EXTRAS = ("search", "table", "yaml", "png")
"""What the tests of the core use too; torch, Ray and the page are left out."""

TESTS_NEED = ("pytest", "hypothesis", "jsonschema", "pint", "pytest-xdist")
"""What they import besides."""

TELLING = ("tests/unit", "tests/golden")
"""What `make lowest` and `make newest` run; files of it that import torch are left out (core_alone.py)."""

LONGEST_SECONDS = 300

PATIENT = ("--disable-pip-version-check", "--timeout", "20", "--retries", "5")
"""Of pip, with a registry."""


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def declared(*extras: str) -> dict[str, str]:
    """The core's dependencies, and those of some extras, each with its lowest version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", one) for one in wanted]
    return {one[1]: one[2] for one in found if one is not None}


def lowest(*extras: str) -> list[str]:
    """Exactly these: `>=8.1` begins with 8.1.0, which is what `==8.1` means."""
    return [f"{name}=={version}" for name, version in declared(*extras).items()]


def run(*command: str | Path, folder: Path, environment: dict[str, str] | None = None) -> Ran:
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def sources(out: Path) -> Path:
    """A copy of what git knows and does not ignore: other tests may write beside it, and nothing of that is read."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", folder=ROOT)
    assert listed.code == 0, listed.err
    for name in filter(None, listed.out.split("\0")):
        with contextlib.suppress(FileNotFoundError):  # somebody's for a moment, and gone
            if not (ROOT / name).is_symlink():
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, out / name)
    return out


def build(target: str, source: Path, out: Path) -> Path:
    """A wheel or an sdist of a source tree, by the build backend itself: nothing is downloaded."""
    made = run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", out, folder=source)
    assert made.code == 0, made.err
    (file,) = (path for path in out.iterdir() if path.suffix in (".whl", ".gz"))
    return file


def install(folder: Path, *packages: str | Path) -> Ran:
    """Make an environment with some packages."""
    made = run(sys.executable, "-m", "venv", "--without-pip", folder, folder=ROOT)
    assert made.code == 0, made.err
    return pip(folder, "install", *packages)


def download(into: Path, *packages: str) -> Ran:
    """Fetch packages and what they need: the only part that a registry can fail. Asked twice at most."""
    words = ("download", "--only-binary", ":all:", "--dest", into, *packages)
    command = (sys.executable, "-m", "pip", *PATIENT, *words)
    ran = Ran(1, "", "")
    for _ in range(2):
        try:
            ran = run(*command, folder=ROOT)
        except subprocess.TimeoutExpired as late:
            return Ran(124, "", str(late))
        if ran.code == 0:
            break
    return ran


def pip(environment: Path, *words: str | Path) -> Ran:
    """Ask this environment's pip about another one."""
    return run(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", *PATIENT, *words, folder=ROOT)


def clean(home: Path, **more: str) -> dict[str, str]:
    """Variables of a person who has just logged in."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", **more}


def main(which: str) -> int:
    """The tests of the core in an environment of its own under build/, against the source tree."""
    place = ROOT / "build" / which
    versions = lowest(*EXTRAS) if which == "lowest" else ["--upgrade", *declared(*EXTRAS)]
    made = install(place, *versions, *TESTS_NEED)
    if made.code:
        print(made.err, file=sys.stderr)
        return made.code
    print(pip(place, "list").out)
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    command = [place / "bin" / "pytest", "-n", "2", "-q", "-m", "not slow", "-p", "machines.core_alone", *TELLING]
    return subprocess.run([str(word) for word in command], cwd=ROOT, env=variables).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
