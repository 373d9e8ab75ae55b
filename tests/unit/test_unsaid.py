"""What rows of language models leave unsaid: a stated default, or every plan that the run may have been."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from foretell.dialects import Launch, dialect, open_configuration, put_together, taken_apart, write
from foretell.hardware import catalog
from foretell.model.source import load
from foretell.plan.fitness import refusals
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.validation import published
from foretell.validation.evaluate import ASSUMED, STATED, EitherPrediction, compare, scores
from foretell.validation.studies import collectives, finetune, kernels, llm
from foretell.validation.study import GIB, MeasuredCall, MeasuredPeak, MeasuredRun, NotScored, Study, read

ROW = {
    "id": "mine", "source": "", "year": "2026", "model": "Llama3-8B", "family": "llama", "layers": "32",
    "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn_hidden": "14336", "vocab": "128256", "seq_len": "8192",
    "gated_mlp": "1", "tied_embeddings": "0", "gpu": "H100-80GB-SXM", "n_gpus": "16", "gpus_per_node": "8",
    "inter_link": "8x400 Gb/s IB NDR", "framework": "Megatron-Core", "precision": "bf16", "dp": "8", "tp": "2",
    "pp": "1", "cp": "1", "sequence_parallel": "1", "zero_stage": "1", "micro_batch": "1", "global_batch": "128",
    "act_ckpt": "none", "iter_time_s": "3.1",
}  # fmt: skip
"""All that a plan says."""


def run(**changes: str) -> MeasuredRun:
    found = next(llm.rows([{**ROW, **changes}]))
    assert isinstance(found, MeasuredRun), found
    return found


def reason(**changes: str) -> str:
    found = next(llm.rows([{**ROW, **changes}]))
    assert isinstance(found, NotScored), found
    return found.reason


def plans(found: MeasuredRun) -> list[str]:
    return [str(plan) for plan in (found.plan, *found.others)]


@functools.cache
def shipped(name: str) -> dict[str, MeasuredRun]:
    return {row.id: row for row in read(published.files(name)[0]).rows}


# defaults, and intervals


def test_a_row_that_says_all_assumes_nothing() -> None:
    found = run()
    assert (found.assumed, found.others) == ((), ())
    assert plans(found) == ["dp8:zero1 tp2:sp +m16 +bf16"]


@pytest.mark.parametrize(
    ("framework", "column", "expected"),
    [
        ("Megatron-Bridge", "act_ckpt", ["dp8:zero1 tp2:sp +m16 +bf16"]),
        ("Megatron-Core", "act_ckpt", ["dp8:zero1 tp2:sp +m16 +bf16", "dp8:zero1 tp2:sp +m16 +recompute:block +bf16"]),
        ("NeMo", "sequence_parallel", ["dp8:zero1 tp2:sp +m16 +bf16"]),
        ("Megatron-Core", "sequence_parallel", ["dp8:zero1 tp2:sp +m16 +bf16", "dp8:zero1 tp2 +m16 +bf16"]),
        ("NeMo", "zero_stage", ["dp8:zero1 tp2:sp +m16 +bf16"]),
        ("torchtitan", "zero_stage", ["dp8:zero3 tp2:sp +m16 +bf16"]),
        ("Megatron-Core", "zero_stage", ["dp8 tp2:sp +m16 +bf16", "dp8:zero1 tp2:sp +m16 +bf16"]),
        ("Megatron-Core", "precision", ["dp8:zero1 tp2:sp +m16 +bf16"]),
        (
            "Megatron-Core",
            "micro_batch",
            [f"dp8:zero1 tp2:sp +m{m} +bf16" for m in (16, 8, 4)],
        ),
    ],
)
def test_a_blank_is_a_default_or_every_answer(framework: str, column: str, expected: list[str]) -> None:
    found = run(framework=framework, **{column: ""})
    assert plans(found) == expected
    assert len(found.assumed) == 1 and found.assumed[0].startswith(f"{column}: ")


def test_blanks_multiply() -> None:
    found = run(sequence_parallel="", act_ckpt="")
    assert len(plans(found)) == 4 and len(found.assumed) == 2


def test_ranks_that_follow_are_not_assumed() -> None:
    """A blank data axis has what the others leave; other blank axes have one rank."""
    found = run(dp="", pp="", cp="")
    assert plans(found) == ["dp8:zero1 tp2:sp +m16 +bf16"] and not found.assumed
    assert reason(dp="", tp="", pp="") == "dp is not stated"


def test_virtual_stages_lie_between_none_and_one_layer_each() -> None:
    found = run(pp="4", dp="2", vpp="", global_batch="128")
    assert plans(found) == [
        "pp4:1f1b dp2:zero1 tp2:sp +m64 +bf16",
        "pp4:interleaved,v8 dp2:zero1 tp2:sp +m64 +bf16",
    ]


@pytest.mark.parametrize(
    ("framework", "comment", "words"),
    [
        ("torchtitan", "", "operators"),
        ("Megatron-Core", "", "attention"),
        ("Megatron-Core", "selective modules; layernorm, moe_act", "layernorm,moe_act"),
        ("Megatron-Core", "recompute mla_up_proj/mlp/moe", "mla_up_proj,mlp,moe"),
    ],
)
def test_selective_recompute(framework: str, comment: str, words: str) -> None:
    found = run(framework=framework, act_ckpt="selective", comment=comment, zero_stage="3")
    (plan,) = plans(found)
    assert f"+recompute:{words} " in plan
    assert (words == "attention") == (not found.assumed)


@pytest.mark.parametrize(
    ("model", "vocab", "tied"),
    [
        ("Llama3-8B", 128256, False),
        ("Llama2-7B", 32000, False),
        ("Llama3.2-3B", 128256, True),
        ("Qwen2.5-7B", 151936, False),
        ("GPT-7B", 51200, True),
    ],
)
def test_vocabulary_and_tied_embeddings_by_name(model: str, vocab: int, tied: bool) -> None:
    found = run(model=model, vocab="", tied_embeddings="")
    assert f"vocab={vocab}," in found.model and f"tied={str(tied).lower()}" in found.model
    assert [word.partition(":")[0] for word in found.assumed] == ["vocab", "tied_embeddings"]


def test_a_model_of_the_zoo_needs_no_shape() -> None:
    blank = dict.fromkeys(("family", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab"), "")
    found = run(**blank, model="llama3-8b", tied_embeddings="", gated_mlp="")
    assert found.model.startswith("llama3-8b:seq=8192") and not found.assumed
    assert reason(**blank, model="nobody") == "family is not stated"


# readers


@pytest.mark.parametrize(
    ("framework", "year", "changes", "runs"),
    [
        ("NeMo AutoModel (FSDP2)", "2026", {"zero_stage": "3"}, "fsdp"),
        ("NeMo 25.04/Megatron-Core", "2025", {}, "nemo"),
        ("Megatron-Bridge", "2026", {"zero_stage": "3"}, "megatron-core"),
        ("MaxText (JAX/XLA)", "2024", {"zero_stage": "3"}, "maxtext"),
        ("PaddlePaddle (PaddleNLP)", "2024", {}, "paddlenlp"),
        ("Megatron-LM", "", {}, "megatron-core"),
        ("PyTorch (torchtune)", "2025", {}, "torchtune"),
        ("PyTorch (torchtune, logits whole)", "2025", {}, "pytorch"),
    ],
)
def test_frameworks(framework: str, year: str, changes: dict[str, str], runs: str) -> None:
    assert run(framework=framework, year=year, **changes).trainer == runs


@pytest.mark.parametrize(
    ("framework", "changes", "runs"),
    [
        ("HAI-LLM", {}, "megatron-core"),
        ("", {}, "megatron-core"),
        ("metaseq (FSDP + Megatron TP)", {"year": "2022"}, "megatron-lm-2023"),
        ("SageMaker", {"tp": "1", "dp": "16", "zero_stage": "3"}, "fsdp"),
        ("Colossal-AI", {"tp": "1", "dp": "16", "zero_stage": "0"}, "pytorch"),
        ("PaxML (JAX)", {"tp": "1", "dp": "16", "zero_stage": "3"}, "maxtext"),
    ],
)
def test_software_that_nobody_describes(framework: str, changes: dict[str, str], runs: str) -> None:
    found = run(framework=framework, **changes)
    assert found.trainer == runs and found.assumed[0].startswith(f"framework: {runs} ")


def test_states_are_shared_among_context_ranks() -> None:
    assert plans(run(dp="1", cp="8", global_batch="16")) == ["dp1:zero1 cp8:ring tp2:sp +m16 +bf16"]
    assert plans(shipped("llm_measured")["simumax-b200-0040"])[0].startswith("dp1:zero1 cp8:alltoall ")


@pytest.mark.parametrize(
    ("word", "policy"),
    [("0", ""), ("", ""), ("optimizer", "+offload:optimizer"), ("optimizer+weights", "+offload:optimizer,weights")],
)
def test_offload(word: str, policy: str) -> None:
    assert [part for part in plans(run(offload=word))[0].split() if "offload" in part] == ([policy] if policy else [])


def test_offload_that_does_not_say_what() -> None:
    assert "optimizer, activations, weights" in reason(offload="1")
    assert "disk is not known" in reason(offload="disk")


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("", "device"),
        ("device GB as printed", "device"),
        ("nvidia-smi", "device"),
        ("reserved", "reserved"),
        ("allocated", "allocated"),
        ("peak active GiB", "allocated"),
        ("max GPU RAM (torch peak)", "allocated"),
    ],
)
def test_memory_of_any_source(kind: str, number: Any) -> None:
    assert run(mem_gib_per_gpu="40", mem_kind=kind).memory == (MeasuredPeak(40 * GIB, number, "worst"),)
    assert run(mem_gib_per_gpu="40", mem_kind=kind, source="simumax-b200").memory[0].number == "allocated"


def test_memory_of_a_kind_that_is_not_known() -> None:
    assert "allocated, reserved or device" in reason(mem_gib_per_gpu="40", mem_kind="virtual")


# fine-tuning


def tuned(**changes: str) -> MeasuredRun | NotScored:
    return next(finetune.rows([{**ROW, "method": "LoRA", "lora_rank": "16", "lora_targets": "all linear", **changes}]))


def test_adapters() -> None:
    found = tuned()
    assert isinstance(found, MeasuredRun) and plans(found) == ["dp8:zero1 tp2:sp +m16 +bf16 +lora16"]
    assert not found.assumed and "lora" in found.subsets
    partly = tuned(lora_targets="attention (qkv, proj)")
    assert isinstance(partly, MeasuredRun) and plans(partly)[0].endswith("+lora16 +adapt:attention")
    embedded = tuned(method="LoRA (emb)")
    assert isinstance(embedded, MeasuredRun) and plans(embedded)[0].endswith("+lora16 +adapt:embeddings")
    packed = tuned(method="QLoRA")
    assert isinstance(packed, MeasuredRun) and "+nf4-dq" in plans(packed)[0]
    assert packed.assumed[0].startswith("base_quantization")
    stated = tuned(base_quantization="bnb.nf4")
    assert isinstance(stated, MeasuredRun) and "+nf4" in plans(stated)[0] and not stated.assumed
    told = {"framework": "NeMo/Megatron-Core (MLPerf)", "precision": "fp8"}
    round_4, next_round = (tuned(source=f"mlperf-v4.{at}", **told) for at in (0, 1))
    assert isinstance(round_4, MeasuredRun) and "+fp8-weights" in plans(round_4)[0]
    assert isinstance(next_round, MeasuredRun) and plans(next_round) == plans(round_4)
    assert len(next_round.assumed) == len(round_4.assumed) + 1
    full = tuned(method="Full", lora_rank="")
    assert isinstance(full, MeasuredRun) and "+lora" not in str(full.plan)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"method": "IA3"}, "not known"),
        ({"optimizer": "SOAP"}, "soap"),
    ],
)
def test_what_no_plan_says(changes: dict[str, str], word: str) -> None:
    found = tuned(**changes)
    assert isinstance(found, NotScored) and word in found.reason


def test_lines_marked_for_want_of_a_column_are_scored() -> None:
    """Adapters had no column; that is no reason any more. Others are."""
    said = "LoRA or QLoRA: validate has no column for adapters; packed"
    assert isinstance(tuned(usable="0", comment=said), MeasuredRun)
    assert isinstance(tuned(usable="0"), NotScored)


def test_16_bit_states() -> None:
    found = tuned(states_precision="bf16-true")
    assert isinstance(found, MeasuredRun) and "+bf16:pure" in str(found.plan)


# rows of the studies that ship


@pytest.mark.parametrize(
    ("name", "plan", "others", "assumed"),
    [
        (
            "megatron-bridge-0002",
            (
                "pp4:interleaved,v4,split=4x15/1 dp64:zero1,ep64,hybridep +m64 +recompute:mla_up_proj +mxfp8 "
                "+a2a-overlap +captured"
            ),
            0,
            ["act_ckpt", "split"],
        ),
        ("megatron-sc21-0017", "pp12:1f1b dp4 tp8 +m384 +recompute:block +fp16", 1, ["vpp"]),
        ("torchtitan-0013", "pp8:1f1b dp8:zero3 tp8:sp +m8 +recompute:block +fp8 +compiled", 0, ["micro_batch"]),
        ("torchao-001", "dp8:zero3 +recompute:operators +bf16 +compiled", 0, ["act_ckpt"]),
        ("dgxc-benchmarking-0274", "dp8:zero3,shard128 +recompute:block +bf16 +compiled", 1, ["act_ckpt"]),
        (
            "xtuner-megatron-moe-011",
            "pp32:interleaved,v3,split=0/1x94/0 dp8:zero1,ep8 +m128 +recompute:block +bf16",
            0,
            [],
        ),
        (
            "zero-bubble-0001",
            "pp8:zb-h1,split=2/3x6/2 +m24 +fp16",
            1,
            ["vocab", "tied_embeddings", "precision", "schedule", "act_ckpt"],
        ),
    ],
)
def test_published_rows(name: str, plan: str, others: int, assumed: list[str]) -> None:
    found = shipped("llm_measured")[name]
    assert (str(found.plan), len(found.others)) == (plan, others)
    assert [word.partition(":")[0] for word in found.assumed] == assumed


def test_experts_by_their_public_shapes() -> None:
    rows = shipped("llm_measured").values()
    kimi = next(row.model for row in rows if "vocab=163840" in row.model)
    assert kimi.startswith("deepseek-v3:") and "experts=384,top_k=8,first_dense=1" in kimi
    oss = next(row for row in rows if "vocab=201088" in row.model)
    assert oss.model.startswith("mixture:") and "head_dim=64" in oss.model and "128 back" in " ".join(oss.assumed)


def test_experts_that_nobody_describes() -> None:
    experts = {"family": "moe", "n_experts": "16", "top_k": "4", "dp": "8"}
    found = run(model="DBRX", **experts)
    assert found.model.startswith("mixture:") and "Llama's frame" in found.assumed[0]
    assert reason(model="X", **experts, comment="hybrid architecture") == "model X is not in the zoo"
    assert "every=2,dense_ffn=28672" in run(model="Llama4", **experts, comment="MoE every second layer").model


def test_most_usable_rows_are_scored() -> None:
    """The aim is 85 %."""
    path = published.files("llm_measured")[0]
    with path.open(newline="") as file:
        usable = {line["id"] for line in csv.DictReader(file) if line["usable"] == "1"}
    scored = usable & set(shipped("llm_measured"))
    assert len(scored) / len(usable) > 0.95


def test_only_the_ends_can_be_without_layers() -> None:
    """The first stage has the embedding, the last the head; one between has nothing."""
    model = load("gpt:layers=4,hidden=64,heads=4,vocab=512,seq=32", 4)
    where = catalog.cluster("4xa100-80")

    def rules(split: str) -> list[str]:
        plan = parse(f"pp4:1f1b,split={split} +m4 +bf16")
        setting = Setting(model, make_job(16, trainer="megatron-core"), plan, trainer("megatron-core"))
        return [refusal.rule for refusal in refusals(setting, where)]

    assert rules("0/2/2/0") == []
    assert rules("1/0/2/1") == ["split of the layers"]


@pytest.mark.parametrize("name", ["megatron-lm", "torchtitan"])
def test_stages_without_layers_in_other_words(name: str, tmp_path: Path) -> None:
    plan = parse(
        "pp4:1f1b,split=0/2/2/0 dp2:zero1 +m4 +bf16" if name == "megatron-lm" else "pp2:1f1b,split=0/4 +m4 +bf16"
    )
    written = write(dialect(name), taken_apart(plan, batch=8, sequence=2048))
    file = tmp_path / dialect(name).file
    file.write_text(written.text)
    ranks = 8 if name == "megatron-lm" else 2
    assert put_together(open_configuration(str(file)).recipe(Launch(ranks, 8))) == plan


# what is compared


@dataclass(frozen=True)
class Told:
    """A stand-in for a prediction: a second for each micro-batch."""

    step_seconds: float
    fits: bool
    usable: float = 8.0
    most: float = 8.0

    @property
    def memory(self) -> Any:
        return Used(self.step_seconds, self.step_seconds, self.step_seconds)

    @property
    def chance(self) -> float:
        return 1 / self.step_seconds

    @property
    def memory_band(self) -> dict[str, float]:
        return {"always": 1.2}

    @property
    def interval(self) -> tuple[float, float]:
        return self.step_seconds * 0.9, self.step_seconds * 1.1


@dataclass(frozen=True)
class Used:
    allocated: float
    reserved: float
    device: float
    by_stage: tuple[float, ...] = ()


def told(setting: Setting, _: Any) -> Told:
    return Told(float(setting.plan.microbatches), setting.plan.microbatches == 4)


def test_of_several_plans_the_mean_and_the_hull() -> None:
    asked = [run(micro_batch="", mem_gib_per_gpu="8"), run(id="other")]
    open_, stated = compare(asked, told)
    assert isinstance(open_.prediction, EitherPrediction) and isinstance(stated.prediction, Told)
    assert open_.prediction.step_seconds == pytest.approx((16 * 8 * 4) ** (1 / 3))
    assert open_.prediction.interval == (4 * 0.9, 16 * 1.1)
    assert open_.prediction.chance == open_.verdict.chance == 1 / 4  # the likeliest of them
    assert open_.prediction.memory_band == {"always": 1.2}
    assert open_.prediction.fits and not stated.prediction.fits
    assert next(open_.memory).predicted == pytest.approx(8.0)
    found = scores(Study("mine", "llm", tuple(asked), ()), [open_, stated])
    assert found.n == 2 and found.subsets[STATED].n == found.subsets[ASSUMED].n == 1


def test_a_plan_that_is_refused_was_not_it() -> None:
    """Megatron-Core wants whole groups of micro-batches for virtual stages: 2 of 4 ranks are none."""
    open_row = run(dp="2", pp="4", vpp="", global_batch="4", tp="2")
    (found,) = compare([open_row], told)
    assert open_row.others and isinstance(found.prediction, Told)


# collectives and kernels


def test_collectives(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(
        "id,gpu,n_gpus,gpus_per_node,inter_link,collective,bytes,time_us\n"
        "a,H100-80GB-SXM,8,8,,all_reduce,1073741824,4200\n"
        "b,H100-80GB-SXM,16,8,8x400 Gb/s IB NDR,reduce_scatter,1073741824,3000\n"
        "c,H100-80GB-SXM,16,8,4x pigeons,all_gather,1073741824,3000\n"
        "d,H100-80GB-SXM,8,8,,all_reduce,,4200\n"
    )
    study = read(file)
    assert (study.family, study.rows, [one.id for one in study.calls]) == ("collectives", (), ["a", "b"])
    assert all(0.5 < one.predicted / one.seconds < 2 for one in study.calls)
    assert [item.reason for item in study.not_scored] == [
        "no link is known for 4x pigeons",
        "a bandwidth without a size",
    ]
    found = scores(study, [])
    assert (found.total, found.n, found.not_scored) == (4, 2, 2)
    assert found.time is not None and found.subsets["reduce-scatter"].n == 1


def test_kernels() -> None:
    line = {"id": "a", "gpu": "H200", "op": "gemm", "phase": "fwd", "dtype": "BF16", "m": "8192", "n": "8192",
            "k": "8192", "time_ms": "1.5"}  # fmt: skip
    timed, rated, unknown = kernels.rows(
        [line, {**line, "id": "b", "time_ms": "", "tflops": "733"}, {**line, "id": "c", "dtype": "INT4"}]
    )
    assert isinstance(timed, MeasuredCall) and isinstance(rated, MeasuredCall)
    assert rated.seconds == pytest.approx(2 * 8192**3 / 733e12) and rated.predicted == timed.predicted
    assert unknown == NotScored("c", "dtype INT4 is not known")
    assert collectives.COLUMNS.isdisjoint({"op", "phase"})


def test_sequences_in_bins_have_no_length() -> None:
    """NVIDIA's scripts of 2021 sort long sequences by length: most have fewer tokens than is stated."""
    assert "bins of 64" in reason(framework="PyTorch DDP (NVFuser)", seq_len="512")
    assert run(framework="PyTorch DDP (NVFuser)", seq_len="128", tp="1", dp="16").step_seconds == 3.1


def test_a_device_that_fits_is_not_the_one_that_was_timed() -> None:
    rows = [row for name, row in shipped("finetune_measured").items() if name.startswith("torchtune-0")]
    assert len(rows) >= 5
    assert all(row.memory and not row.step_seconds for row in rows)
