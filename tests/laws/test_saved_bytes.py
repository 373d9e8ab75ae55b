"""What autograd keeps under every rule of recomputation: the bytes of the program, and the allocator's own count.

One forward pass of a real module under real checkpointing, on a CPU. A rule that is added is asked by itself.
"""

from __future__ import annotations

import functools
import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from foretell import modules
from foretell.model.layers import layers
from foretell.model.source import load
from foretell.plan.job import make_job
from foretell.plan.policies.recompute import Recompute
from foretell.plan.recomputation import recomputations
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.appliers import recompute as applier

DEEPSEEK = (
    "deepseek:layers=3,hidden=64,heads=4,vocab=50,seq=32,first_dense=1,query_rank=32,kv_rank=16,head_dim=16,rotary_dim=8,"
    "value_dim=24,ffn=96,experts=8,top_k=2,expert_ffn=48,groups=4,top_groups=2"
)
MODELS = {
    "llama": "llama:layers=3,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=50,seq=32",
    "gpt": "gpt:layers=3,hidden=64,heads=4,vocab=50,seq=32",
    "mixture": "mixture:layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=50,seq=32,experts=4",
    "deepseek": DEEPSEEK,
    "second token": f"{DEEPSEEK},mtp=1",
}
BATCH = 2
LOSS = 4
CONSTANTS = {"llama": 0, "gpt": 0, "mixture": 0, "deepseek": 16, "second token": 32}
"""Bytes that are no activations: a mixture of DeepSeek has a number of its own, and so has each further loss."""

PLACES = 32 * 8
"""Numbers of the places of a sequence: among the samples in the program, and made again where all of a model is."""

LATER = 32 * BATCH * 8
"""Targets of the second token: their loss, which makes them, lies outside of the model that runs again as a whole."""

JOINED = ("attention,mlp", "moe,mlp", "mlp,shared_experts")

NUMBERED = ("every2", "first1", "first2", "nth2", "nth3")

RUNS = {
    "llama": {"none", "attention", "mlp", "operators", "block", "full", *NUMBERED, "attention,mlp"},
    "gpt": {"none", "attention", "mlp", "operators", "block", "full", *NUMBERED, "attention,mlp"},
    "mixture": {"none", "attention", "moe", "operators", "block", "full", *NUMBERED, "moe,mlp"},
    "deepseek": {"none", "attention", "mlp", "moe", "shared_experts", "operators", "block", "full", *NUMBERED, *JOINED},
    "second token": {
        "none",
        "attention",
        "mlp",
        "moe",
        "shared_experts",
        "operators",
        "block",
        "full",
        *NUMBERED[1:],
        *JOINED,
    },
}
"""Rules that drop something of a model and that `foretell run` can run; of the others it says why not."""


def setting(spec: str, part: Recompute) -> Setting:
    text = "dp1" if part == Recompute() else f"dp1 +recompute:{part.option}"
    return Setting(load(spec, BATCH), make_job(BATCH, trainer="pytorch"), parse(text), trainer("pytorch"))


def held(spec: str, asked: Setting, part: Recompute) -> int:
    """Bytes that the allocator has given out more after a forward pass than before."""
    module: Any = modules.build(spec)
    torch.manual_seed(0)
    sample = modules.example(spec, BATCH)
    named = dict(module.named_modules())
    own = [(name, named[name]) for name in layers(asked.graph) if name in named]
    subject: Any = SimpleNamespace(setting=asked, parts=[module], layers=lambda part: iter(own))
    if part != Recompute():
        applier.apply(part, subject)
    gc.collect()  # what an earlier case left in cycles would be counted as freed by this one
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as notes:
            loss = sample.loss(module(*sample.inputs), sample.target)
    finally:
        gc.enable()
    assert loss.requires_grad and notes.profiler is not None and notes.profiler.kineto_results is not None
    return sum(one.nbytes() for one in notes.profiler.kineto_results.events() if one.name() == "[memory]")


@functools.cache
def words() -> list[str]:
    return [*recomputations(), *NUMBERED, *JOINED]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("word", words())
def test_what_is_kept_is_what_the_allocator_holds(model: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, part = MODELS[model], Recompute.of_option(word)
    asked = setting(spec, part)
    refused = [why for why, _ in applier.refusals(part, asked)]
    if refused:
        assert word not in RUNS[model], refused
        return
    # checkpoints keep the state of the random numbers too, which is no activation
    monkeypatch.setattr(applier, "checkpoint", functools.partial(checkpoint, preserve_rng_state=False))
    sample = modules.example(spec, BATCH)
    given = sum(tensor.nbytes for tensor in (*sample.inputs, sample.target))
    said = expand(lower(asked)).stages[0].memory.kept - given + LOSS
    measured = held(spec, asked, part)
    least = {("full", "gpt"): -PLACES, ("full", "second token"): LATER}.get((word, model), 0)
    assert least <= measured - said <= CONSTANTS[model] + least
