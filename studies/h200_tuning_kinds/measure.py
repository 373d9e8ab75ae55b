"""Other kinds of fine-tuning on one GPU: prompts, prefixes, DoRA, frozen layers, DPO, reward models.

    python studies/h200_tuning_kinds/measure.py --out FOLDER --seconds 60 [--device cpu --tiny] [--only WORD]

Hugging Face's own classes and PEFT, weights drawn from configurations, as in studies/h200_finetuning, whose ways of
timing this takes. Writes FOLDER/kinds.jsonl, a line a case. Which half is set aside follows from the names by a hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "h200_finetuning"))

from cases import DENSE, Case, full
from measure import KINDS, Steps, about, configuration, energy, kernels, release, timed

SEED = 2028


def case(kind: str, model: str, batch: int, length: int, **other: Any) -> Case:
    return {**full(model, batch, length), "method": kind, **other}


EVERY: list[Case] = [
    case("prompt", "llama-3.2-1b", 8, 1024, tokens=20),
    case("prompt", "llama-3.2-1b", 4, 2048, tokens=100, checkpointing=True),
    case("prompt", "llama-3.2-3b", 4, 1024, tokens=20),
    case("prefix", "llama-3.2-1b", 8, 1024, tokens=20),
    case("prefix", "llama-3.2-1b", 4, 2048, tokens=100),
    case("prefix", "llama-3.2-3b", 4, 1024, tokens=20),
    case("dora", "llama-3.2-1b", 8, 1024, rank=16, adapter="fp32"),
    case("dora", "llama-3.2-3b", 4, 1024, rank=16, adapter="bf16", checkpointing=True),
    case("dora", "llama-3.2-3b", 4, 1024, rank=16, adapter="fp32"),
    case("last", "llama-3.2-1b", 8, 1024, layers=4),
    case("last", "llama-3.2-3b", 8, 1024, layers=8, checkpointing=True),
    case("last", "llama-3.1-8b", 4, 1024, layers=2),
    case("dpo", "llama-3.2-1b", 8, 1024),
    case("dpo", "llama-3.2-3b", 8, 512, checkpointing=True),
    case("dpo lora", "llama-3.2-1b", 8, 1024, rank=16, adapter="fp32"),
    case("dpo lora", "llama-3.2-3b", 8, 512, rank=16, adapter="bf16", checkpointing=True),
    case("reward", "llama-3.2-1b", 8, 1024),
    case("reward", "llama-3.2-3b", 8, 512, checkpointing=True),
]


def identity(one: Case) -> str:
    words = ("method", "model", "batch", "length", "tokens", "rank", "adapter", "layers", "checkpointing")
    return " ".join(f"{word}={one[word]}" for word in words if one.get(word))


def set_aside(one: Case) -> bool:
    return hashlib.sha256(f"{SEED} {identity(one)}".encode()).digest()[0] % 2 == 1


def prepared(one: Case, module: Any) -> Any:
    """The module as its users train it."""
    from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model

    kind = one["method"]
    if kind in ("prompt", "prefix"):
        made = PromptTuningConfig if kind == "prompt" else PrefixTuningConfig
        if one["checkpointing"]:
            module.enable_input_require_grads()
        return get_peft_model(module, made(task_type="CAUSAL_LM", num_virtual_tokens=one["tokens"]))
    if one["rank"]:
        if one["checkpointing"]:
            module.enable_input_require_grads()
        config = LoraConfig(
            r=one["rank"], lora_alpha=2 * one["rank"], target_modules=list(DENSE), use_dora=kind == "dora",
            task_type="CAUSAL_LM",
        )  # fmt: skip
        return get_peft_model(module, config, autocast_adapter_dtype=one["adapter"] == "fp32")
    if kind == "last":
        for weight in module.parameters():
            weight.requires_grad_(False)
        for layer in module.model.layers[-one["layers"] :]:
            layer.requires_grad_(True)
    return module


def scores(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Logarithms of the answers, as TRL takes them (selective_log_softmax, a row at a time in 16 bits)."""
    found = [
        row.log_softmax(-1).gather(-1, label[:, None]).squeeze(-1)
        for row, label in zip(logits[:, :-1], ids[:, 1:], strict=True)
    ]
    return torch.stack(found).sum(-1)


class KindSteps(Steps):
    """Steps of one of these kinds."""

    def __init__(self, one: Case, device: str, tiny: bool) -> None:
        import transformers

        self.case, self.cuda = one, device == "cuda"
        config = configuration(one["model"], "sdpa", tiny)
        auto = transformers.AutoModelForCausalLM
        if one["method"] == "reward":
            auto, config.num_labels, config.pad_token_id = transformers.AutoModelForSequenceClassification, 1, 0

        def made() -> Any:
            with torch.device(device):
                return auto.from_config(config, dtype=KINDS["bf16"], attn_implementation="sdpa").to(device)

        module = made()
        if one["checkpointing"]:
            module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.module = prepared(one, module).train()
        self.reference = made().eval() if one["method"] == "dpo" else None
        rows = one["batch"]  # of pairs: the chosen ones, then the rejected
        self.ids = torch.randint(1, config.vocab_size, (rows, one["length"]), device=device)
        trained = [weight for weight in self.module.parameters() if weight.requires_grad]
        self.told = {
            "parameters": sum(weight.numel() for weight in module.parameters()),
            "trained_parameters": sum(weight.numel() for weight in trained),
            "trained_types": sorted({str(weight.dtype).removeprefix("torch.") for weight in trained}),
        }
        self.optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=self.cuda or None)

    def _loss(self) -> torch.Tensor:
        ids, kind = self.ids, self.case["method"]
        if kind == "reward":
            chosen, rejected = self.module(input_ids=ids).logits.squeeze(-1).chunk(2)
            return -torch.nn.functional.logsigmoid(chosen - rejected).mean()
        if "dpo" not in kind:
            return self.module(input_ids=ids, labels=ids).loss
        with torch.no_grad():
            if self.reference is None:
                with self.module.disable_adapter():
                    before = scores(self.module(input_ids=ids).logits, ids)
            else:
                before = scores(self.reference(input_ids=ids).logits, ids)
        chosen, rejected = (scores(self.module(input_ids=ids).logits, ids) - before).chunk(2)
        return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()

    def step(self) -> list[Any]:
        marks = [self.mark()]
        loss = self._loss()
        marks.append(self.mark())
        loss.backward()
        marks.append(self.mark())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        marks.append(self.mark())
        self.loss = loss.detach()
        return marks


def row_of(one: Case, device: str, tiny: bool, joules: Callable[[], float | None]) -> dict[str, Any]:
    row: dict[str, Any] = {"id": identity(one), "set_aside": set_aside(one), **one, "outcome": "ok"}
    row["rest_before_bytes"] = release(device == "cuda")
    try:
        steps = KindSteps(one, device, tiny)
        row |= steps.told
        if steps.cuda:
            row["built_bytes"] = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        row |= timed(steps, joules)
        if steps.cuda:
            row |= kernels(steps)
    except Exception as problem:
        row |= {"outcome": "failed", "failed": f"{type(problem).__name__}: {problem}"[:300]}
    return row


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--seconds", type=float, default=60.0)
    words.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    words.add_argument("--tiny", action="store_true", help="small models and short rows, to try it")
    words.add_argument("--only", default="", help="cases whose name has this word")
    chosen = words.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    began, cuda = time.perf_counter(), chosen.device == "cuda"
    torch.manual_seed(SEED)
    joules = energy() if cuda else lambda: None
    order = list(EVERY)
    random.Random(SEED).shuffle(order)
    with (chosen.out / "kinds.jsonl").open("w") as file:
        for row in [about(chosen.device)]:
            file.write(json.dumps(row) + "\n")
        longest = 5.0
        for one in order:
            if chosen.only not in identity(one) or time.perf_counter() - began > chosen.seconds - longest:
                continue
            small = {"batch": 2, "length": 32, "tokens": one.get("tokens") and 4, "layers": one.get("layers") and 1}
            at = time.perf_counter()
            row = row_of({**one, **small} if chosen.tiny else one, chosen.device, chosen.tiny, joules)
            row["seconds"] = round(time.perf_counter() - at, 2)
            longest = max(longest, row["seconds"])
            file.write(json.dumps(row) + "\n")
            file.flush()
            said = f"{row.get('step_ms', 0):.0f} ms {row.get('peak_bytes', 0) / 2**30:.1f} GiB"
            print(f"{time.perf_counter() - began:4.0f} s  {row['outcome']:6} {said:20} {row['id']}", flush=True)
            if "failed" in row:
                print(row["failed"], flush=True)


if __name__ == "__main__":
    main()
