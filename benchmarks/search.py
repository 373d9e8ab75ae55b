"""How fast the search is: plans a second on one core, priced in full (time and memory), cold and warm.

python benchmarks/search.py [NAME]    NAME: a case, or all of them; gpt3 is the long one
"""

from __future__ import annotations

import resource
import sys
import time
from typing import NamedTuple

from foretell.compiling import available
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.oracle.request import SearchConstraints
from foretell.oracle.search import search
from foretell.oracle.space import Space
from foretell.plan.job import make_job
from foretell.plan.trainer import trainer
from foretell.timeline import engine


class Case(NamedTuple):
    model: str
    on: str
    batch: int
    trained_by: str
    precision: str = "bf16"
    also: tuple[str, ...] = ()


CASES = {
    "llama-8b": Case("llama3-8b", "8xh100", 64, "pytorch"),
    "llama-70b": Case("llama3-70b", "64xh100", 256, "megatron-core"),
    "llama-70b-512": Case("llama3-70b", "512xh100", 256, "megatron-core"),
    "resnet-50": Case("resnet50", "16xv100", 256, "pytorch", "fp32"),
    "gpt3": Case("gpt3-175b", "1024xa100-80", 1536, "megatron-core", also=("offload",)),
}


def run(case: Case) -> None:
    graph = load(case.model, case.batch, None, case.precision)
    for heat in ("cold", "warm"):
        job = make_job(case.batch, trainer=case.trained_by)
        space = Space(
            graph, job, trainer(case.trained_by), cluster(case.on), case.precision, SearchConstraints(also=case.also)
        )
        begun = time.process_time()
        found = search(space)
        taken = time.process_time() - begun
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{case.model} on {case.on}, batch {case.batch}, {case.trained_by}, {heat}: {found.evaluated:,} plans of "
            f"{found.local_programs:,} local programs in {found.seconds:.2f} s ({taken:.2f} s of the processor), "
            f"{found.plans_per_second:,.0f} a second, {most:.2f} GiB"
        )
        if found.best:
            print(f"    {found.best.step_seconds:.4f} s   {found.best.plan}")


if __name__ == "__main__":
    if available():
        engine.kernels(fast=True)
    names = sys.argv[1:] or [name for name in CASES if name != "gpt3"]
    for name in names:
        run(CASES[name])
