"""Training scripts as they are under `foretell rehearse --script`: python studies/h200_scripts/run.py --out FOLDER

CARRIED names a folder with torchtitan 0.2.2 (`titan`), megatron-core 0.16.1 (`megatron`) and what they import besides
(`scripts`: tyro, torchdata, ...), unpacked. What each printed goes to FOLDER/scripts.txt, and
records to FOLDER/scripts.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TITAN = """
[job]
dump_folder = "{out}"
[model]
name = "llama3"
flavor = "{flavor}"
hf_assets_path = "{assets}"
[optimizer]
name = "AdamW"
lr = 3e-4
[lr_scheduler]
warmup_steps = 2
[training]
local_batch_size = 1
seq_len = {length}
max_norm = 1.0
steps = 1000
dataset = "c4_test"
dataset_path = "{assets}"
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = {split}
[activation_checkpoint]
mode = "{again}"
selective_ac_option = "op"
[compile]
enable = {compiled}
"""


class Started(NamedTuple):
    """A script with its arguments, on a cluster."""

    name: str
    on: str
    script: str  # below CARRIED, or here
    arguments: str
    trainer: str = ""
    limit: float = 45.0


def commands(tiny: bool, folder: Path) -> list[Started]:
    sizes, small = ("8 4096 4096", "8 2048 2048") if not tiny else ("2 128 64", "2 128 64")
    titan = "titan/torchtitan/train.py"
    plans = (("dp64", 1, "selective", "false"), ("dp8 tp8", 8, "full", "false"))
    found = [
        Started("plain FSDP2", "64xh200", "fsdp2.py", sizes),
        Started("Accelerate", "64xh200", "with_accelerate.py", small),
    ]
    for at, (name, split, again, compiled) in enumerate(plans):
        file = folder / f"titan_{at}.toml"
        length = 128 if tiny else 8192
        told = {"out": folder, "assets": folder, "flavor": "debugmodel" if tiny else "8B", "length": length}
        file.write_text(TITAN.format(**told, split=split, again=again, compiled=compiled))
        arguments = f"--job.config_file {file}"
        found.append(Started(f"torchtitan, {name}", "64xh200", titan, arguments, "torchtitan"))
    sized = "8 4096 32 4096 8" if not tiny else "2 128 8 64 8"
    return [*found, Started("Megatron-Core", "64xh200", "megatron_core.py", sized, "megatron")]


def assets(folder: Path) -> None:
    """Texts of drawn words, and a tokenizer of them."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = [f"w{at}" for at in range(1500)]
    vocabulary = {word: at for at, word in enumerate(["<unk>", "<s>", "</s>", *words])}
    made = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    made.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    rows = folder / "rows"
    rows.mkdir()
    draw = random.Random(25)
    with (rows / "rows.jsonl").open("w") as file:
        for _ in range(2000):
            file.write(json.dumps({"text": " ".join(draw.choices(words, k=draw.randint(200, 900)))}) + "\n")


def started(one: Started, carried: Path, assets_at: Path, records: Path, steps: int) -> str:
    """What it printed, and how it ended."""
    places = [str(HERE / "stubs"), *(str(carried / name) for name in ("titan", "megatron", "scripts"))]
    paths = [*places, *(os.environ.get("PYTHONPATH", "").split(":"))]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "TRAINER": one.trainer, "ROWS": str(assets_at / "rows")}
    script = carried / one.script if "/" in one.script else HERE / one.script
    words = ["rehearse", "--script", "--on", one.on, "--steps", str(steps), "--records", str(records)]
    command = [sys.executable, "-m", "foretell", *words, str(script), "--", *shlex.split(one.arguments)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=one.limit, env=environment)
    except subprocess.TimeoutExpired as late:
        return f"{(late.stdout or b'').decode()[-3000:]}(no end within {late.timeout:.0f} s)\n"
    return f"{ran.stdout[-6000:]}{ran.stderr[-3000:]}(exit code {ran.returncode})\n"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--seconds", type=float, default=120.0)
    asked.add_argument("--steps", type=int, default=5)
    asked.add_argument("--only", default="")
    asked.add_argument("--tiny", action="store_true")
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    carried, begin = Path(os.environ["CARRIED"]).resolve(), time.perf_counter()
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        assets(folder)
        for one in (one for one in commands(options.tiny, folder) if options.only in one.name):
            if time.perf_counter() - begin > options.seconds - 8:
                print(f"no time left for {one.name}", flush=True)
                continue
            start = time.perf_counter()
            records = folder / "records"
            said = started(one, carried, folder, records, options.steps)
            took = time.perf_counter() - start
            with (options.out / "scripts.txt").open("a") as pages:
                pages.write(f"== {one.name}: {one.script} {one.arguments}\n{said}({took:.1f} s)\n\n")
            with (options.out / "scripts.jsonl").open("a") as rows:
                for file in records.rglob("*.json"):
                    rows.write(json.dumps({"name": one.name, "record": json.loads(file.read_text())}) + "\n")
                    file.unlink()
            print(f"{took:5.1f} s  {one.name}: {said.strip().splitlines()[-1][:300]}", flush=True)


if __name__ == "__main__":
    main()
