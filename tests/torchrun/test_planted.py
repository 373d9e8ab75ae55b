"""A `numpy.py` that lies in the current folder is not numpy: not to a command, nor to any Python that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = ("__future__", "click", "json", "msgspec", "multiprocessing", "numpy", "torch", "typing")

OWN = """
import torch
from sibling_of_mine import WIDTH

def factory(batch=4): return torch.nn.Linear(WIDTH, WIDTH), torch.zeros(batch, WIDTH)
"""

COMMANDS = {
    "analyze": "analyze mine.py:factory",
    "sweep": "sweep --model mlp,mine.py:factory --on 1xh100 --batch 8 --plan dp1 --jobs 2 --calibration none",
    "run": "run own_package.mine:factory --plan dp2 --batch 4 --steps 1 --device cpu",
    "bench": "bench --engine ddp --pair image --model lenet --task synthetic --ranks 1 --batch 4 --steps 1 --look 0",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_imported_from_the_current_folder(name: str, tmp_path: Path) -> None:
    for module in PLANTED:
        (tmp_path / f"{module}.py").write_text(f"open(r'{tmp_path}/imported', 'a').write('{module} ')\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    (tmp_path / "sibling_of_mine.py").write_text("WIDTH = 8\n")
    for file in ("mine.py", "own_package/mine.py"):
        (tmp_path / file).write_text(OWN)
    own = {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "FORETELL_RECORDS": str(tmp_path / "records")}
    given = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"} | own
    command = [sys.executable, "-m", "foretell", *COMMANDS[name].split()]
    ran = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True)
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    assert ran.returncode == 0, ran.stdout + ran.stderr
