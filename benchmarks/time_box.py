"""How soon `foretell plan` answers, and how far below the answer the proven bound lies: one process a question.

    python benchmarks/time_box.py [--seconds 5] [--exhaustive]

Each line: seconds from typing to the answer (imports included), plans priced and excluded by their bounds, the share of
meshes that were looked at, the fastest step, and what no plan can be faster than. The kernels are compiled and kept
before the first line, as on any machine that has run a search before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

QUESTIONS = (
    ("llama3-70b", "256xh100", 1024, "pytorch", ""),
    ("llama3-70b", "256xh100", 1024, "torchtitan", ""),
    ("llama3-70b", "256xh100", 1024, "megatron-core", ""),
    ("llama3-405b", "1024xh100", 512, "nemo", ""),
    ("llama3-405b", "16384xh100", 2048, "megatron-core", ""),
    ("llama3-8b", "16384xh100", 16384, "torchtitan", ""),
    ("deepseek-v3", "2048xh800", 15360, "megatron-core", "fp8"),
    ("mixtral-8x7b", "16384xh100", 16384, "pytorch", ""),
    ("vit-b-16", "16384xh100", 65536, "pytorch", ""),
    ("resnet50", "16xv100", 512, "pytorch", ""),
    ("vgg16", "16384xh100", 65536, "pytorch", ""),
)


def asked(
    model: str, on: str, batch: int, trainer: str, precision: str, more: list[str]
) -> tuple[float, dict[str, object]]:
    words = [sys.executable, "-m", "foretell", "plan", model, "--on", on, "--batch", str(batch), "--trainer", trainer]
    words += ["--precision", precision] if precision else []
    begin = time.perf_counter()
    ran = subprocess.run(
        [*words, *more, "--json"], capture_output=True, text=True, env={**os.environ, "FORETELL_PROGRESS": "none"}
    )
    taken = time.perf_counter() - begin
    return taken, json.loads(ran.stdout) if ran.stdout else {"error": ran.stderr.strip()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--exhaustive", action="store_true")
    given = parser.parse_args()
    more = ["--seconds", f"{given.seconds:g}"] + (["--exhaustive"] if given.exhaustive else [])
    asked("llama3-8b", "64xh100", 512, "pytorch", "", [])  # compiles
    print(f"{'':44}  answer   priced  excluded  looked at    fastest  no faster than")
    for model, on, batch, trainer, precision in QUESTIONS:
        taken, found = asked(model, on, batch, trainer, precision, more)
        name = f"{model} on {on}, {trainer}"
        fastest = found.get("fastest")
        if not isinstance(fastest, dict):
            print(f"{name:44}  {taken:5.1f} s  {str(found.get('error') or 'nothing fits')[:60]}")
            continue
        step, least, share = fastest["step_seconds"], found["least_seconds"], found["seen"]
        print(
            f"{name:44}  {taken:5.1f} s  {found['evaluated']:7,}  {found['excluded']:8,}  {share:9.0%}"
            f"  {step:9.4g} s  {least:9.4g} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
