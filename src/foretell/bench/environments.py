"""Where another framework lives: in this environment, or in one of its own that is made on demand.

Frameworks quarrel over what they need. So each may have a virtual environment that sees all packages of this one (torch
among them) and keeps its own before them; torch stays what it is here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from foretell.bench.engine import Engine
from foretell.errors import BadInput
from foretell.processes import python
from foretell.records.home import home

VARIABLE: Final = "FORETELL_ENVIRONMENTS"
"""The folder of these environments, for those who want another."""

KEPT = ("torch", "numpy")
"""Packages that an environment shares with this one, in the same version, whatever a framework asks for."""

SHARED = "shared.pth"
"""Python's way to add folders to those it imports from, after an environment's own."""


class Home(NamedTuple):
    """Where an engine can be imported."""

    python: str
    version: str


def folder(engine: Engine) -> Path:
    """The environment of an engine's package; it may not be there yet."""
    given = os.environ.get(VARIABLE, "")
    base = Path(given) if given else home().parent / "environments"
    return base / engine.package.partition("[")[0]


def found(engine: Engine) -> Home | None:
    """Where all that an engine needs is installed: in its own environment, or else here. None: nowhere."""
    if not engine.package:
        version = _version("torch", sys.path)
        return Home(sys.executable, version) if version else None
    own = folder(engine)
    if (own / "bin" / "python").exists():
        version = _installed(engine, [*map(str, _site_packages(own)), sysconfig.get_path("purelib")])
        if version:
            return Home(str(own / "bin" / "python"), version)
    version = _installed(engine, sys.path)
    return Home(sys.executable, version) if version else None


def _installed(engine: Engine, places: list[str]) -> str:
    """The version of an engine's package among these folders, where all that it needs lies there too; or nothing."""
    versions: list[str] = []
    for name in (engine.package, *engine.extras):
        versions.append(_version(name.partition("[")[0], places))
    return versions[0] if all(versions) else ""


def _version(name: str, places: list[str]) -> str:
    """Of a package among these folders; or nothing."""
    return next((one.version for one in metadata.distributions(name=name, path=places)), "")


def _site_packages(own: Path) -> Iterator[Path]:
    yield from own.glob("lib/python*/site-packages")


def install(engine: Engine) -> Home:
    """Make the environment of an engine, and install its package."""
    if not engine.package:
        raise BadInput(f"{engine.title} needs no package", where="--install", fix="one of foretell bench --list")
    own = folder(engine)
    venv.create(own, with_pip=True, symlinks=True)
    (place,) = _site_packages(own)
    (place / SHARED).write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    limits = own / "constraints.txt"
    limits.write_text("".join(f"{name}=={metadata.version(name)}\n" for name in KEPT))
    command = python("-m", "pip", "install", "--quiet", "--constraint", str(limits), by=str(own / "bin" / "python"))
    ran = subprocess.run([*command, engine.package, *engine.extras], capture_output=True, text=True)
    home = found(engine)
    if ran.returncode or home is None:
        last = "\n".join(ran.stderr.strip().splitlines()[-6:])
        raise BadInput(f"{engine.package} could not be installed:\n{last}", where=str(own), fix="pip's own words above")
    return home
