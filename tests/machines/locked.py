"""Write `requirements.lock`: every package of .venv, by version and by the hash of the file that pip takes for it here.

    python tests/machines/locked.py
    pip install --require-hashes -r requirements.lock

The hashes are those for this Python and this kind of machine; another one has other files, and makes its own. torch is
left out: which build is right depends on the device.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("torch", "pip", "setuptools", "foretell")
HEADER = """\
# Made by `make lock`: what the checks ran with, for `pip install --require-hashes -r requirements.lock`.
# The hashes are of the files for {python} on {machine}; elsewhere, `make lock` writes those that are right there.
# torch is not here: its builds differ by device. Install it first, then foretell itself with --no-deps.
"""


def installed() -> list[str]:
    """What this environment has, as `name==version`."""
    command = [sys.executable, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return sorted(f"{one['name']}=={one['version']}" for one in listed if one["name"].lower() not in LEFT_OUT)


def hashes(wanted: list[str]) -> dict[str, str]:
    """Of the file that pip takes for each, by `name==version`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        subprocess.run([*command, "--disable-pip-version-check", "--report", str(report), *wanted], check=True)
        found = json.loads(report.read_text())["install"]
    return {
        f"{one['metadata']['name'].lower().replace('_', '-')}=={one['metadata']['version']}": one["download_info"][
            "archive_info"
        ]["hashes"]["sha256"]
        for one in found
    }


def main() -> None:
    wanted = installed()
    known = hashes(wanted)
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    header = HEADER.format(python=python, machine=f"{platform.system()} {platform.machine()}")
    lines = [f"{one} --hash=sha256:{known[one.lower().replace('_', '-')]}" for one in wanted]
    (ROOT / "requirements.lock").write_text(header + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
