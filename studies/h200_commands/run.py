"""Runs `foretell rehearse` as a user types it, on one GPU: `python studies/h200_commands/run.py --out FOLDER`

What each printed goes to FOLDER/pages.txt with its command before it, records to FOLDER/records.jsonl, a line each. A
command that fails or takes too long is there, too. `--tiny` takes small models that a processor can step.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EIGHT = "--batch 64 --seq 8192 --steps 5"
COMMANDS = (
    f"llama3-8b:layers=8 --on 64xh200 --plan 'dp64:zero3 +bf16 +recompute:block' {EIGHT}",
    "llama3-8b:layers=8 --on 64xh200 --plan 'dp8:zero3 tp8:sp +bf16' --batch 16 --seq 8192 --steps 5",
    "llama3-8b:layers=8 --on 512xh200 --plan 'dp64:zero3 +bf16 +recompute:block' --batch 512 --seq 1024 --steps 5",
    "mixtral-8x7b:layers=4 --on 8xh200 --plan 'dp8:zero1,ep8 +bf16 +recompute:block' --batch 16 --seq 4096 --steps 5",
    "qwen3-30b-a3b:layers=4 --on 8xh200 --plan 'dp8:zero1,ep8 +bf16' --batch 16 --seq 4096 --steps 5",
    "llama3-8b:layers=8 --on 16xh200 --plan 'pp2:1f1b dp8:zero1 +m4 +bf16' --batch 64 --seq 4096 --steps 4",
    "gpt2 --seq 1024 --on 512xh100 --plan 'dp128:zero3 tp4 +bf16' --batch 512 --steps 10",
    "llama3-8b --on 512xh200 --plan 'dp64:zero3 tp8:sp +bf16 +recompute:block' --batch 512 --seq 8192 --steps 4",
)
TINY = (
    "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=64 --on 64xh200 --plan 'dp64:zero3 +fp32' --batch 64 --steps 3",
    "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=64 --on 16xh200 --plan 'dp2:zero3 tp8 +fp32' --batch 16 --steps 3",
)
PATIENCE = 75.0


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--seconds", type=float, default=150.0)
    asked.add_argument("--calibration", default="none")
    asked.add_argument("--only", default="", help="those with a word")
    asked.add_argument("--tiny", action="store_true")
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    with (options.out / "pages.txt").open("a") as pages, (options.out / "records.jsonl").open("a") as records:
        for text in (text for text in (TINY if options.tiny else COMMANDS) if options.only in text):
            left = options.seconds - (time.perf_counter() - begin)
            if left < 5:
                print(f"no time left for {text}", flush=True)
                continue
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "foretell", "rehearse", *shlex.split(text), "--records", folder]
                command += ["--calibration", options.calibration]
                try:
                    ran = subprocess.run(command, capture_output=True, text=True, timeout=min(left, PATIENCE))
                    said = ran.stdout + ran.stderr + f"(exit code {ran.returncode})\n"
                except subprocess.TimeoutExpired as late:
                    said = f"{(late.stdout or b'').decode()}(no end within {late.timeout:.0f} s)\n"
                for file in sorted(Path(folder).rglob("*.json")):
                    records.write(json.dumps({"command": text, "record": json.loads(file.read_text())}) + "\n")
            took = time.perf_counter() - start
            pages.write(f"$ foretell rehearse {text}\n{said}({took:.1f} s)\n\n")
            pages.flush()
            records.flush()
            print(f"{took:5.1f} s  {text}: {said.strip().splitlines()[-1][:200]}", flush=True)


if __name__ == "__main__":
    main()
