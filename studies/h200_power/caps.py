"""What the card draws under a power cap or at locked clocks, if the driver lets us; and whole steps at neither.

    python studies/h200_power/caps.py --out FOLDER --seconds 70

Writes FOLDER/caps.jsonl. First what the driver says to each way to set a cap or a clock (NVML, then nvidia-smi): a
refusal is a row, too. Then training steps that `measure.py` has not, at the usual settings: rows with `set_aside` judge
joules of a step. Then, at each setting that was taken, the same few loads. Settings are put back however this ends.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from loads import LOADS, Load, moving, product, step
from loads import STEPS as KNOWN_STEPS
from measure import loop, measured, sampled, samples_of, set_aside

CAPS = (700, 600, 500, 400, 300)
"""Watts; the first is what the card has anyway."""

CLOCKS = (1700, 1400, 1100, 800)
"""MHz of the multiprocessors."""


def _language(kind: str, batch: int, length: int, **sizes: int) -> Callable[[], tuple[Any, tuple[Any, ...], Any]]:
    def made() -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**sizes)
        head = {"Llama": "LlamaForCausalLM", "Bert": "BertForMaskedLM"}[kind]
        tokens = torch.randint(config.vocab_size, (batch, length), device="cuda")
        return getattr(transformers, head)(config), (tokens,), lambda module, ids: module(ids, labels=ids).loss

    return made


def _vision(name: str, batch: int) -> Callable[[], tuple[Any, tuple[Any, ...], Any]]:
    def made() -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
        import torchvision.models

        images = torch.randn(batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (batch,), device="cuda")
        return getattr(torchvision.models, name)(), (images, labels), lambda m, x, t: F.cross_entropy(m(x), t)

    return made


LLAMA_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
BERT_LARGE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
STEPS = {
    "llama3.2-1b": _language("Llama", 4, 2048, **LLAMA_1B),
    "bert-large": _language("Bert", 32, 512, **BERT_LARGE),
    "convnext-base": _vision("convnext_base", 128),
    "swin-t": _vision("swin_t", 256),
    "densenet121": _vision("densenet121", 128),
    "vgg16": _vision("vgg16", 128),
    "vit-l-16": _vision("vit_l_16", 64),
    "mobilenet-v2": _vision("mobilenet_v2", 256),
}
"""Names as foretell has them, with batches that fill the card."""

KNOWN_STEPS |= STEPS
TRIED: dict[str, Load] = {
    "bf16 8192": product(8192, 8192, 8192),
    "copy": moving("copy"),
    "step gpt2_medium": LOADS["step gpt2_medium"],
    "step resnet50": LOADS["step resnet50"],
}


class Settings:
    """The card's power limit and clocks, and a way to put them back."""

    def __init__(self) -> None:
        self.library: Any = None
        self.handle = ctypes.c_void_p()
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            self.library.nvmlInit_v2()
            self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle))
        except OSError:
            pass

    def nvml(self, name: str, *numbers: int) -> str:
        """What NVML answers; empty: done."""
        if self.library is None:
            return "NVML's library is not there"
        answer = getattr(self.library, name)(self.handle, *map(ctypes.c_uint, numbers))
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        return self.library.nvmlErrorString(answer).decode() if answer else ""

    @staticmethod
    def smi(*words: str) -> str:
        """What `nvidia-smi` answers; empty: done."""
        try:
            done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)[:200]
        said = f"{done.stdout} {done.stderr}".strip()
        refused = done.returncode != 0 or any(
            word in said.lower() for word in ("not supported", "permission", "failed")
        )
        return said[:300] if refused else ""

    def cap(self, watts: int) -> dict[str, str]:
        nvml = self.nvml("nvmlDeviceSetPowerManagementLimit", 1000 * watts)
        return {"nvml": nvml, **({"nvidia-smi": self.smi("-pl", str(watts))} if nvml else {})}

    def clock(self, mhz: int) -> dict[str, str]:
        nvml = self.nvml("nvmlDeviceSetGpuLockedClocks", mhz, mhz)
        return {"nvml": nvml, **({"nvidia-smi": self.smi("-lgc", f"{mhz},{mhz}")} if nvml else {})}

    def put_back(self, limit_mw: int | None) -> None:
        if limit_mw:
            self.cap(limit_mw // 1000)
        if self.nvml("nvmlDeviceResetGpuLockedClocks"):
            self.smi("-rgc")

    def limit(self) -> int | None:
        value = ctypes.c_uint()
        if self.library is None or self.library.nvmlDeviceGetPowerManagementLimit(self.handle, ctypes.byref(value)):
            return None
        return int(value.value)


def ways(settings: Settings) -> Iterator[tuple[str, int, Callable[[int], dict[str, str]]]]:
    yield from (("cap", watts, settings.cap) for watts in CAPS)
    yield from (("clock", mhz, settings.clock) for mhz in CLOCKS)


@contextmanager
def restored(settings: Settings) -> Iterator[int | None]:
    before = settings.limit()
    try:
        yield before
    finally:
        settings.put_back(before)


def run_of(load: Load, seconds: float, raw: Path) -> dict[str, Any]:
    """One load's row; what failed is a row, too."""
    try:
        ran, flops, moved = loop(load, seconds)
        time.sleep(0.05)
        row = {"flops": flops, "bytes": moved, "calls": ran.calls, **measured(ran, samples_of(raw))}
        row["calls_per_second"] = round(ran.calls / max(1e-9, ran.end - ran.start), 4)
    except Exception as problem:
        row = {"failed": f"{type(problem).__name__}: {problem}"[:300]}
    gc.collect()
    torch.cuda.empty_cache()
    return row


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--seconds", type=float, default=70.0)
    words.add_argument("--each", type=float, default=1.2)
    words.add_argument("--device", default="cuda")
    words.add_argument("--tiny", action="store_true")
    words.add_argument("--only", default="", help="settings and steps by name: 'cap 700,cap 300,mobilenet-v2'")
    chosen = words.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    began, settings = time.monotonic(), Settings()
    raw, out = chosen.out / "caps_samples.jsonl", chosen.out / "caps.jsonl"

    def left() -> float:
        return chosen.seconds - (time.monotonic() - began)

    with out.open("w") as file, restored(settings) as before:

        def told(row: dict[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()
            print({name: row[name] for name in row if name != "instant"}, f"{chosen.seconds - left():.0f} s")

        tried = [(way, value, set_to, set_to(value)) for way, value, set_to in ways(settings)]
        settings.put_back(before)
        for way, value, _, answers in tried:
            told({"group": "asked", "way": way, "value": value, "limit_before_mw": before, "answers": answers})
        if chosen.device == "cpu" or chosen.tiny:
            told({"group": "about", "torch": torch.__version__, "steps": sorted(STEPS), "tried": sorted(TRIED)})
            return
        torch.ones(1, device="cuda")
        with sampled(raw):
            time.sleep(0.3)
            told({"group": "about", "torch": torch.__version__, "device": torch.cuda.get_device_name()})
            only = [word.strip() for word in chosen.only.split(",") if word.strip()]
            for name in [one for one in STEPS if not only or one in only]:
                if left() > 0.4 * chosen.seconds:
                    row = {"group": "step", "id": name, "set_aside": set_aside(f"step {name}")}
                    told(row | run_of(step(name), chosen.each, raw))
            for way, value, set_to, answers in tried:
                if "" in answers.values() and (not only or f"{way} {value}" in only):
                    set_to(value)
                    time.sleep(0.2)
                    for name, load in TRIED.items():
                        if left() > 2 + chosen.each:
                            row = {"group": "held", "way": way, "value": value, "id": name}
                            told(row | run_of(load, chosen.each, raw))
                    settings.put_back(before)


if __name__ == "__main__":
    main()
