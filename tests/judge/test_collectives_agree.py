"""The program and torch's own collectives: the same kinds, counts and bytes along every axis on rank 0."""

from __future__ import annotations

import pytest
from hypothesis import given

from judge import our_side, torch_side
from judge.cases import LLAMA_8B, Case, cases
from judge.torch_side import Judge
from law_examples import examples

LLAMA = "llama:layers=2,hidden=64,heads=8,kv_heads=4,ffn=128,vocab=256,seq=48,dtype=bf16"
GPT = "gpt:layers=2,hidden=64,heads=8,ffn=128,vocab=256,seq=48,dtype=fp32"
BERT = "bert:layers=2,hidden=64,heads=8,ffn=128,vocab=256,seq=48,positions=64,dtype=fp32"

AGREEMENTS = (
    Case(model=LLAMA, shard=2),
    Case(model=LLAMA, shard=4, batch=3, reshard=False, reduce="fp32"),
    Case(model=LLAMA, replicate=256, shard=4),
    Case(model=LLAMA, tensor=4, logits="parallel"),
    Case(model=LLAMA, tensor=4, logits="parallel", shared_input=True),
    Case(model=LLAMA, tensor=4, logits="parallel", sequence=True),
    Case(model=LLAMA, shard=2, tensor=2, logits="parallel"),
    Case(model=LLAMA, replicate=128, shard=2, tensor=4, logits="parallel"),
    Case(model=f"{LLAMA},qkv_bias=true,tied=true", shard=2, tensor=2, logits="parallel"),
    Case(model=GPT, shard=24),
    Case(model=GPT, tensor=4),
    Case(model=GPT, tensor=4, logits="parallel"),
    Case(model=f"{GPT},positions=rotary,gated=true", shard=2, tensor=4),
    Case(model=f"{GPT},positions=alibi,attention=efficient,bias=false", replicate=2, shard=4, compute="bf16"),
    Case(model=f"{BERT},objective=mlm", shard=8),
    Case(model=f"{BERT},objective=mlm", tensor=2),
    Case(model=f"{BERT},objective=features", shard=2, tensor=2, shared_input=True),
    Case(model=f"{BERT},objective=features", replicate=4, shard=8, compute="bf16", reduce="fp32"),
    Case(model=f"{GPT},positions=none,bias=false", tensor=4, sequence=True, logits="parallel"),
    Case(model=LLAMA, shard=24),
    Case(model=LLAMA, shard=1024),
    Case(model=f"{LLAMA_8B},layers=4", tensor=8, logits="parallel"),
    Case(model=LLAMA.replace("layers=2", "layers=1"), shard=2),
    Case(model=GPT.replace("layers=2", "layers=1"), tensor=2),
    Case(model=LLAMA, tensor=4),
    Case(model=LLAMA.replace("ffn=128", "ffn=64"), shard=3, tensor=4, sequence=True),
    Case(model=f"{LLAMA_8B},layers=4", tensor=8),
    Case(model=LLAMA, shard=2, tensor=2, sequence=True, logits="parallel"),
    Case(model=f"{LLAMA},qk_norm=true", shard=2, tensor=2, logits="parallel"),
    Case(model=f"{GPT},positions=none", tensor=4, sequence=True, logits="parallel"),
    Case(model=LLAMA_8B, shard=1024),
    Case(model=LLAMA_8B, shard=128, tensor=8, logits="parallel"),
)


def _name(case: Case) -> str:
    choices = [word for word in ("shared_input", "reshard") if getattr(case, word)]
    return " ".join([case.model, our_side.plan(case), case.logits, *choices])


def assert_agree(judge: Judge, case: Case) -> None:
    """The same collectives. What the recorder sums itself (see `Case.settled`) is compared in bytes only."""
    seen = judge.observe(case)
    torchs = torch_side.payloads(tuple(one for one in seen if one.phase != "settling"))
    settled = sum(one.input_bytes * one.count for one in seen if one.phase == "settling")
    ours = our_side.payloads(case, "weight gradients" if case.shard == 1 else "")
    assert ours.besides == settled
    assert ours.counted == torchs


@pytest.mark.parametrize("case", AGREEMENTS, ids=_name)
def test_the_program_says_what_torch_does(judge: Judge, case: Case) -> None:
    assert_agree(judge, case)


@examples(15)
@given(case=cases(tables=("rows",)))
def test_the_law_over_models_and_degrees(judge: Judge, case: Case) -> None:
    """A replicated table beside split layers is torch's to run, but no plan of ours says it."""
    assert_agree(judge, case)
