"""foretell doctor: what is installed and found here, what is missing, and the command to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil

import click
import msgspec

from foretell.cli.table import WIDTH
from foretell.compiling import CACHE, available
from foretell.version import __version__

PACKAGES = (
    ("click", "", "the command line"),
    ("msgspec", "", "files and records"),
    ("numpy", "", "predicting and searching"),
    ("torch", "torch", "your own modules, profile, calibrate, run"),
    ("numba", "search", "a faster search"),
    ("pyarrow", "table", "tables as Parquet"),
    ("yaml", "yaml", "configurations in YAML"),
    ("sklearn", "run", "the digits to train on"),
    ("resvg_py", "png", "figures as PNG"),
    ("timm", "timm", "models of timm that do not ship as graphs"),
    ("starlette", "serve", "the page in the browser"),
    ("uvicorn", "serve", "the page in the browser"),
    ("ray", "ray", "sweeps over many machines"),
    ("accelerate", "bench", "one of the frameworks that are compared"),
    ("zensical", "docs", "the documentation as a site"),
    ("transformers", "hf", "Hugging Face modules"),
)
"""What can be imported, the extra that brings it, and what it is for."""

PROGRAMS = (
    ("nvidia-smi", "the GPUs of this machine", "NVIDIA's driver"),
    ("cc", "emulated networks", "apt install gcc"),
    ("sbatch", "starting on Slurm", "a Slurm cluster"),
)

NAMES = {"yaml": "pyyaml", "resvg_py": "resvg-py", "sklearn": "scikit-learn"}
"""Packages that are installed under another name."""


class DoctorFinding(msgspec.Struct, frozen=True):
    """One thing that was looked for."""

    kind: str  # package, program, device, calibration
    name: str
    found: str  # its version or what it is; empty: it is not there
    use: str
    get: str  # the command that brings it


@click.command("doctor", short_help="What is installed, what is missing, and how to get it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool) -> None:
    """What is installed, what is missing, and the command to get it.

    Predicting and searching work without any of it.
    """
    findings = [*_packages(), *_programs(), *_devices(), *_calibrations()]
    about = {"foretell": __version__, "python": platform.python_version(), "system": platform.platform(terse=True)}
    if as_json:
        click.echo(msgspec.json.encode({**about, "findings": findings}))
        return
    click.echo(f"foretell {__version__}, Python {about['python']}, {about['system']}\n")
    lines = ["found"]
    for one in findings:
        lines += _told(one.name, one.use, one.found) if one.found else []
    missing = [one for one in findings if not one.found]
    lines += ["", "missing"] if missing else []
    for one in missing:
        lines += _told(one.name, one.use, one.get)
    click.echo("\n".join(lines))


def _told(name: str, use: str, text: str) -> list[str]:
    """A name with what it is for, and what is known about it; on a second line where one is too short."""
    line = f"  {name:<14}{use:<44}{text}"
    return [line] if len(line) <= WIDTH else [f"  {name:<14}{use}", f"  {'':<14}  {text}"]


def _packages() -> list[DoctorFinding]:
    return [_package(*one) for one in PACKAGES]


def _package(name: str, extra: str, use: str) -> DoctorFinding:
    get = f"pip install 'foretell[{extra}]'" if extra else "pip install --upgrade foretell"
    if importlib.util.find_spec(name) is None:
        return DoctorFinding("package", name, "", use, get)
    try:
        version = importlib.metadata.version(NAMES.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        version = "there"
    if name == "numba" and not available():
        version += f", unused: no folder of yours for what it compiles ({CACHE})"
    return DoctorFinding("package", name, version, use, get)


def _programs() -> list[DoctorFinding]:
    return [DoctorFinding("program", name, shutil.which(name) or "", use, get) for name, use, get in PROGRAMS]


def _devices() -> list[DoctorFinding]:
    from foretell.hardware.this_machine import machine, processor

    found = machine().cluster
    core = processor()
    devices = [
        DoctorFinding("device", core.device.name, core.title.removeprefix("this machine: "), "run, calibrate", "")
    ]
    if found.device.name != core.device.name:
        devices.insert(
            0, DoctorFinding("device", found.device.name, found.title.removeprefix("this machine: "), "run", "")
        )
    return devices


def _calibrations() -> list[DoctorFinding]:
    """Records of this machine that predictions pick up."""
    from foretell.files import is_folder
    from foretell.records.home import VARIABLE, home

    folder = home()
    files = sorted(folder.glob("calibration-*.json")) if is_folder(folder) else []
    use = "predictions that rest on this machine"
    told = f"{len(files)} in {folder}" if files else ""
    where = f"${VARIABLE}" if os.environ.get(VARIABLE) else str(folder)
    return [DoctorFinding("calibration", "records", told, use, f"foretell calibrate (kept in {where})")]
