"""Fine-tuning steps of Hugging Face's own classes and PEFT, on one GPU.

    python studies/h200_finetuning/measure.py --out FOLDER --seconds 400 [--device cpu] [--only WORD]

Writes FOLDER/finetuning.jsonl, a line a case: milliseconds of some steps and of their three parts by device events, the
most memory allocated and reserved, what one more step's kernels took by the profiler, and joules of the steps by the
card's own counter. Weights are drawn on the device from a configuration; nothing is downloaded. What does not fit is a
row with its outcome. Rows with `set_aside` judge: no constant is chosen on them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from cases import ATTENTION, DENSE, MODELS, Case, drawn, identity, set_aside
from nf4 import Packed, pack

KINDS = {"bf16": torch.bfloat16, "fp32": torch.float32}
WARM = 2
TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2,
}  # fmt: skip


def energy() -> Callable[[], float | None]:
    """Joules by the card's counter, read through NVML; nothing without its library."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        handle = ctypes.c_void_p()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)):
            return lambda: None
    except OSError:
        return lambda: None

    def read() -> float | None:
        value = ctypes.c_ulonglong()
        refused = library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value))
        return None if refused else value.value / 1e3

    return read


def configuration(name: str, attention: str, tiny: bool) -> Any:
    from transformers import AutoConfig

    told = dict(MODELS[name])
    if tiny:
        told |= {key: value for key, value in TINY.items() if key in told or told["type"] in ("bert", "vit")}
        told = {key: value for key, value in told.items() if key not in ("head_dim",) or MODELS[name].get(key)}
    kind = told.pop("type")
    config = AutoConfig.for_model(kind, **told)
    config.use_cache = False
    config._attn_implementation = attention
    for rate in ("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout"):
        if hasattr(config, rate):
            setattr(config, rate, 0.0)
    return config


def built(case: Case, device: str, tiny: bool) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The module as its users make it, ready to train, and what is told of its weights."""
    import transformers

    config = configuration(case["model"], case["attention"], tiny)
    of = {"bert": "AutoModelForSequenceClassification", "vit": "AutoModelForImageClassification"}
    auto = getattr(transformers, of.get(config.model_type, "AutoModelForCausalLM"))
    kind = KINDS["fp32" if case["weights"] == "fp32" else "bf16"]
    with torch.device(device):
        module = auto.from_config(config, dtype=kind, attn_implementation=case["attention"])
    module.to(device)
    told: dict[str, Any] = {"parameters": sum(weight.numel() for weight in module.parameters())}
    if case["base"].startswith("nf4"):
        told["packed_bytes"] = pack(module)
        if case["weights"].startswith("fp32"):
            module.float()
    if case["checkpointing"]:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if case["method"] != "full":
        module = adapted(module, case)
    module.train()
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    told["trained_parameters"] = sum(weight.numel() for weight in trained)
    told["trained_types"] = sorted({str(weight.dtype).removeprefix("torch.") for weight in trained})
    return module, told


def adapted(module: Any, case: Case) -> torch.nn.Module:
    from peft import LoraConfig, get_peft_model

    if case["checkpointing"] or case["base"].startswith("nf4"):
        module.enable_input_require_grads()
    names = ATTENTION if case["targets"] == "attention" else DENSE
    config = LoraConfig(r=case["rank"], lora_alpha=2 * case["rank"], target_modules=list(names), task_type="CAUSAL_LM")
    return get_peft_model(module, config, autocast_adapter_dtype=case["adapter"] == "fp32")


def inputs_of(case: Case, module: Any, device: str) -> dict[str, torch.Tensor]:
    config, batch, length = module.config, case["batch"], case["length"]
    if config.model_type == "vit":
        kind = KINDS["fp32" if case["weights"] == "fp32" else "bf16"]
        pixels = torch.randn(batch, 3, config.image_size, config.image_size, device=device, dtype=kind)
        return {"pixel_values": pixels, "labels": torch.randint(2, (batch,), device=device)}
    ids = torch.randint(config.vocab_size, (batch, length), device=device)
    if config.model_type == "bert":
        return {"input_ids": ids, "labels": torch.randint(2, (batch,), device=device)}
    told = {"input_ids": ids, "labels": ids}
    if case["mask"] in ("ones", "padded"):
        told["attention_mask"] = torch.ones_like(ids)
    if case["mask"] == "padded":  # the rows are filled from a half to whole
        for row in range(batch):
            told["attention_mask"][row, length // 2 + row * length // (2 * batch) :] = 0
        told["labels"] = ids.masked_fill(told["attention_mask"] == 0, -100)
    if case["mask"] == "packed":  # documents of 1,024 tokens, told by positions that begin anew
        told["position_ids"] = (torch.arange(length, device=device) % max(8, length // 8))[None].expand(batch, -1)
    return told


class Steps:
    """Training steps of one case."""

    def __init__(self, case: Case, device: str, tiny: bool) -> None:
        self.module, self.told = built(case, device, tiny)
        self.inputs = inputs_of(case, self.module, device)
        trained = [weight for weight in self.module.parameters() if weight.requires_grad]
        way = {"fused": True} if case["optimizer"] == "adamw_fused" else {"foreach": True}
        self.optimizer = torch.optim.AdamW(trained, lr=1e-6, **way)
        self.cast = torch.autocast(device, torch.bfloat16) if case["autocast"] else contextlib.nullcontext()
        self.cuda = device == "cuda"

    def mark(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def step(self) -> list[Any]:
        """Marks between the three parts."""
        marks = [self.mark()]
        with self.cast:
            loss = self.module(**self.inputs).loss
        marks.append(self.mark())
        loss.backward()
        marks.append(self.mark())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        marks.append(self.mark())
        self.loss = loss.detach()
        return marks

    def gap(self, first: Any, second: Any) -> float:
        return first.elapsed_time(second) if self.cuda else (second - first) * 1e3


def wait(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def timed(steps: Steps, joules: Callable[[], float | None]) -> dict[str, Any]:
    for _ in range(WARM):
        began = time.perf_counter()
        steps.step()
        wait(steps.cuda)
        one = time.perf_counter() - began
    many = max(3, min(8, int(1.5 / one)))
    if steps.cuda:
        steps.told["rest_bytes"] = torch.cuda.memory_allocated()
    before, began = joules(), time.perf_counter()
    marks = [steps.step() for _ in range(many)]
    wait(steps.cuda)
    wall, after = time.perf_counter() - began, joules()
    told: dict[str, Any] = {"steps": many, "wall_ms": round(wall / many * 1e3, 3), "loss": float(steps.loss)}
    if steps.cuda:
        told |= {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
        told["allocator_retries"] = torch.cuda.memory_stats().get("num_alloc_retries")
    parts = {"step": (0, 3), "forward": (0, 1), "backward": (1, 2), "optimizer": (2, 3)}
    for part, (start, end) in parts.items():
        samples = sorted(steps.gap(mark[start], mark[end]) for mark in marks)
        told[f"{part}_ms"] = round(statistics.median(samples), 3)
        if part == "step":
            last = len(samples) - 1
            told |= {"p10": round(samples[round(0.1 * last)], 3), "p90": round(samples[round(0.9 * last)], 3)}
            told["samples"] = [round(sample, 3) for sample in samples]
    if before is not None and after is not None:
        told |= {"joules": round((after - before) / many, 3), "joules_over_seconds": round(wall, 3)}
    return told


def kernels(steps: Steps) -> dict[str, Any]:
    """Kernels of one more step: how many, how long altogether, and those that take longest."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        steps.step()
        wait(steps.cuda)
    totals: dict[str, list[float]] = {}
    for event in seen.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            total = totals.setdefault(event.name()[:120], [0, 0.0])
            total[0] += 1
            total[1] += event.duration_ns() / 1e6
    longest = sorted(totals.items(), key=lambda item: -item[1][1])[:40]
    return {
        "launches": int(sum(count for count, _ in totals.values())),
        "kernels_ms": round(sum(ms for _, ms in totals.values()), 3),
        "kernels": {name: [int(count), round(ms, 4)] for name, (count, ms) in longest},
    }


def measured(case: Case, device: str, joules: Callable[[], float | None], free_bytes: int) -> Iterator[dict[str, Any]]:
    """What is told of a case, part by part: what comes later may fail."""
    began = time.perf_counter()
    steps = Steps(case, device, device == "cpu")
    yield {**steps.told, "building_seconds": round(time.perf_counter() - began, 2)}
    if steps.cuda:
        torch.cuda.reset_peak_memory_stats()
        yield {"built_bytes": torch.cuda.memory_allocated(), "before_bytes": free_bytes}
    yield timed(steps, joules)
    if steps.cuda:
        yield {"rest_bytes": steps.told["rest_bytes"], **kernels(steps)}


def release(cuda: bool) -> int:
    """Bytes that are still allocated when all is let go."""
    gc.collect()
    if not cuda:
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def row_of(case: Case, device: str, joules: Callable[[], float | None], left: int) -> dict[str, Any]:
    row: dict[str, Any] = {"group": "step", "id": identity(case), "set_aside": set_aside(case), **case, "outcome": "ok"}
    try:
        for told in measured(case, device, joules, left):
            row |= told
    except torch.OutOfMemoryError as problem:
        row |= {"outcome": "oom", "failed": str(problem)[:300]}
    except Exception as problem:
        row |= {"outcome": "failed", "failed": f"{type(problem).__name__}: {problem}"[:300]}
    return row


def unpacking(device: str) -> Iterator[dict[str, Any]]:
    """The kernel that unpacks, alone: that it is right, and its time."""
    for rows, columns in ((512, 2048), (2048, 2048), (8192, 2048), (4096, 4096), (14336, 4096), (4096, 14336)):
        told: dict[str, Any] = {"group": "nf4", "rows": rows, "columns": columns}
        try:
            packed = Packed(torch.randn(rows, columns, device=device))
            off = (packed.unpacked().float() - packed.plain().float()).abs().max()
            told["largest_difference"] = float(off)
            samples: list[float] = []
            for _ in range(9 if device == "cuda" else 0):
                torch.empty(2**27, dtype=torch.uint8, device=device).zero_()  # nothing waits in the cache
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                packed.unpacked()
                end.record()
                torch.cuda.synchronize()
                samples.append(round(start.elapsed_time(end), 5))
            told |= {"samples": samples, "ms": statistics.median(samples) if samples else None}
        except Exception as problem:
            told["failed"] = f"{type(problem).__name__}: {problem}"[:300]
        yield told


def about(device: str) -> dict[str, Any]:
    told: dict[str, Any] = {"group": "about", "torch": torch.__version__, "cuda": torch.version.cuda}
    for name in ("transformers", "peft", "triton"):
        try:
            told[name] = __import__(name).__version__
        except Exception as problem:
            told[name] = f"missing: {problem}"[:100]
    if device == "cuda":
        told |= {"device": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
        told["memory"] = torch.cuda.get_device_properties(0).total_memory
    return told


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--seconds", type=float, default=400.0)
    words.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    words.add_argument("--only", default="", help="cases whose name has this word")
    chosen = words.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    cuda = chosen.device == "cuda"
    torch.manual_seed(28)
    joules = energy() if cuda else lambda: None
    with (chosen.out / "finetuning.jsonl").open("w") as file:

        def write(row: dict[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        write(about(chosen.device))
        for told in unpacking(chosen.device):
            write(told)
        longest = 10.0
        for case in drawn():
            if chosen.only not in identity(case):
                continue
            if time.perf_counter() - began > chosen.seconds - longest:
                print("the time is spent", flush=True)
                break
            at = time.perf_counter()
            row = row_of(
                {**case, **({"batch": 2, "length": 32} if not cuda else {})}, chosen.device, joules, release(cuda)
            )
            row["seconds"] = round(time.perf_counter() - at, 2)
            longest = max(longest, row["seconds"])
            write(row)
            said = f"{row.get('step_ms', 0):.0f} ms {row.get('peak_bytes', 0) / 2**30:.1f} GiB"
            print(f"{time.perf_counter() - began:4.0f} s  {row['outcome']:6} {said:20} {row['id']}", flush=True)


if __name__ == "__main__":
    main()
