"""Ray: a Python file that starts one worker a device and runs the training in each. Names: Ray 2.60, ray/train/torch.

`ray job submit --working-dir . -- python FILE` sends it to a cluster.
"""

from __future__ import annotations

import shlex
from typing import Any

from foretell.dialects._recipe import Recipe
from foretell.errors import BadInput

FRAME = """# ray job submit --working-dir . -- python THIS_FILE
import os
import runpy
import sys

from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def train():
    os.environ.update({variables})
    sys.argv = {words}
    {run}


TorchTrainer(
    train,
    scaling_config=ScalingConfig(num_workers={ranks}, use_gpu=True),
).fit()
"""


def write(recipe: Recipe, words: list[str], own: str, variables: dict[str, str]) -> str:
    """Ray sets what torch.distributed needs; the training's own module or file is run in each worker."""
    if own:
        raise BadInput(f"{own} starts ranks itself, and Ray wants to", where="--launch", fix="torchrun, or sbatch")
    flat = [part for word in words for part in shlex.split(word)]
    if flat[:1] == ["-m"]:
        run, argv = f'runpy.run_module("{flat[1]}", run_name="__main__")', flat[1:]
    else:
        run, argv = f'runpy.run_path("{flat[0]}", run_name="__main__")', flat
    return FRAME.format(variables=variables, words=argv, run=run, ranks=recipe.ranks)


def read(document: dict[str, Any]) -> tuple[Any, Any]:
    """Scripts of a shell do not start it."""
    return None, None
