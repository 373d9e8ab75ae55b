"""How fast stages are chosen: 160 layers on 16 stages, cold and warm, on one core.

python benchmarks/stages.py [PLAN ...]
"""

from __future__ import annotations

import sys
import time

from foretell.oracle.planning import space_of
from foretell.oracle.request import read
from foretell.oracle.stages import best_split
from foretell.plan.text import parse

MODEL = "gpt:layers=160,hidden=4096,heads=32"
ON = "128xh100"
BATCH = 512
PLANS = ("pp16:1f1b dp8 +m32 +bf16", "pp16:zb-h1 dp8 +m32 +bf16", "pp8:interleaved,v4 dp16 +m32 +bf16")


def run(text: str) -> None:
    question = read(model=MODEL, on=ON, batch=BATCH)
    setting = space_of(question).setting(parse(text))
    for heat in ("cold", "warm"):
        start = time.process_time()
        found = best_split(setting, question.place, float("inf"))
        taken = time.process_time() - start
        assert found is not None
        print(
            f"{MODEL}, {text}, {heat}: {found.priced} splits predicted in {taken:.2f} s; {found.gain:.1%} faster than "
            f"the usual stages, at most {found.gap:.1%} more to gain"
        )
        if heat == "warm":
            print(f"    {found.plan}")


if __name__ == "__main__":
    for text in sys.argv[1:] or PLANS:
        run(text)
