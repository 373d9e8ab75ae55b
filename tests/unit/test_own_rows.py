"""A file of one's own: cells as people write them are read as the words of the columns."""

from __future__ import annotations

import pytest

from foretell.validation import published
from foretell.validation.network_words import NodeLink, network
from foretell.validation.studies import cnn, collectives, kernels, llm
from foretell.validation.study import GIB, Line, MeasuredCall, MeasuredPeak, MeasuredRun, NotScored, csv_lines

LANGUAGE: Line = {
    "id": "mine", "source": "nobody knows it", "model": "llama3-8b", "seq_len": "8192", "gpu": "H100-80GB-SXM",
    "n_gpus": "64", "framework": "FSDP", "precision": "bf16", "dp": "64", "tp": "1", "pp": "1", "micro_batch": "1",
    "global_batch": "64", "act_ckpt": "full", "tokens_per_s_per_gpu": "7000",
}  # fmt: skip

VISION: Line = {
    "id": "mine", "model": "resnet50", "task_dataset": "", "input_shape": "3x224x224", "gpu": "A100-SXM4-80GB",
    "n_gpus": "8", "gpus_per_node": "", "framework": "PyTorch", "precision": "AMP", "strategy": "data",
    "partitions": "", "micro_batches": "", "per_gpu_batch": "256", "global_batch": "2048", "optimizer": "SGD momentum",
    "iter_time_s": "0.1", "samples_per_s": "", "mem_gib_per_gpu": "", "act_ckpt": "0", "usable": "1",
}  # fmt: skip


def language(**cells: str) -> MeasuredRun | NotScored:
    return next(llm.rows([{**LANGUAGE, **cells}]))


def vision(**cells: str) -> MeasuredRun | NotScored:
    return next(cnn.rows([{**VISION, **cells}]))


SAME_LANGUAGE: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"precision": "BF16"}, {}),
    ({"precision": "bfloat16"}, {}),
    ({"precision": "bf16-mixed"}, {}),
    ({"precision": "FP8 hybrid"}, {"precision": "fp8"}),
    ({"precision": "bf16-true"}, {"states_precision": "bf16"}),
    ({"act_ckpt": "True"}, {}),
    ({"act_ckpt": "1"}, {}),
    ({"act_ckpt": "off"}, {"act_ckpt": "none"}),
    ({"outcome": "OOM"}, {"outcome": "oom"}),
    ({"outcome": "Success"}, {}),
    ({"optimizer": "adamw_torch_fused"}, {"optimizer": "adamw"}),
    ({"optimizer": "paged_adamw_8bit"}, {"optimizer": "adamw8bit"}),
    ({"optimizer": "adamw_bnb_8bit"}, {"optimizer": "adamw8bit"}),
    ({"compile": "yes"}, {"compile": "1"}),
    ({"tp": "4", "dp": "16", "sequence_parallel": "true"}, {"tp": "4", "dp": "16", "sequence_parallel": "1"}),
    ({"tp": "4", "dp": "16", "sequence_parallel": "No"}, {"tp": "4", "dp": "16", "sequence_parallel": "0"}),
    ({"framework": "DeepSpeed ZeRO-3"}, {"framework": "DeepSpeed", "zero_stage": "3"}),
    ({"framework": "DeepSpeed (ZeRO stage 2)"}, {"framework": "DeepSpeed", "zero_stage": "2"}),
    ({"model": "meta-llama/Llama-3.1-8B"}, {}),
    ({"model": "Llama-3-8B"}, {}),
    ({"n_gpus": "1", "dp": ""}, {"n_gpus": "1", "dp": "1"}),
]


@pytest.mark.parametrize(("written", "meant"), SAME_LANGUAGE)
def test_words_of_language_models(written: dict[str, str], meant: dict[str, str]) -> None:
    found = language(**written)
    assert isinstance(found, MeasuredRun)
    assert found == language(**meant)


SAME_VISION: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"precision": "amp"}, {}),
    ({"precision": "fp16-mixed"}, {}),
    ({"precision": "bfloat16"}, {"precision": "BF16"}),
    ({"precision": "float32"}, {"precision": "FP32"}),
    ({"strategy": ""}, {}),
    ({"strategy": "DDP"}, {}),
    ({"act_ckpt": "false"}, {}),
    ({"global_batch": ""}, {}),
    ({"usable": ""}, {}),
    ({"optimizer": "SGD with momentum"}, {}),
    ({"optimizer": "adamw_torch"}, {"optimizer": "AdamW"}),
    ({"input_shape": "224"}, {}),
    ({"input_shape": "(3, 224, 224)"}, {}),
    ({"input_shape": "224x224x3"}, {}),
    ({"model": "DenseNet-121"}, {"model": "densenet121"}),
    ({"model": "ViT-B-16"}, {"model": "vit-b-16"}),
    ({"model": "EfficientNetV2-M"}, {"model": "efficientnetv2_m"}),
]


@pytest.mark.parametrize(("written", "meant"), SAME_VISION)
def test_words_of_vision_models(written: dict[str, str], meant: dict[str, str]) -> None:
    found = vision(**written)
    assert isinstance(found, MeasuredRun)
    assert found == vision(**meant)


@pytest.mark.parametrize("column", ["framework", "act_ckpt"])
def test_what_is_assumed_of_a_blank_is_said(column: str) -> None:
    found = vision(**{column: ""})
    assert isinstance(found, MeasuredRun)
    assert any(word.startswith(f"{column}: ") for word in found.assumed)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"sequence_parallel": "perhaps"}, "sequence_parallel is perhaps, neither 1 nor 0"),
        ({"precision": "int3"}, "precision int3 is not known"),
        ({"outcome": "odd"}, "outcome odd is not known"),
        ({"method": "DoRA"}, "method DoRA is not known"),
        ({"mem_gib_per_gpu": "3", "mem_kind": "odd"}, "mem_kind odd is not known: allocated, reserved or device"),
    ],
)
def test_a_word_that_nobody_knows_is_a_reason(cells: dict[str, str], reason: str) -> None:
    assert language(**cells) == NotScored("mine", reason)


def test_memory_of_any_source_counts() -> None:
    for found in (language(mem_gib_per_gpu="40"), vision(mem_gib_per_gpu="40")):
        assert isinstance(found, MeasuredRun)
        assert found.memory == (MeasuredPeak(40 * GIB, "device", "worst"),)
    for found in (
        language(mem_gib_per_gpu="40", mem_kind="reserved"),
        vision(mem_gib_per_gpu="40", mem_kind="reserved"),
    ):
        assert isinstance(found, MeasuredRun)
        assert found.memory == (MeasuredPeak(40 * GIB, "reserved", "worst"),)


def test_layers_of_a_named_model_are_those_of_the_zoo() -> None:
    """Pipelines ask for layers: how many stages there are, and how many virtual ones there may be."""
    found = language(framework="Megatron-Core", dp="8", tp="4", pp="2", zero_stage="1")
    assert isinstance(found, MeasuredRun)
    assert str(found.plan).startswith("pp2:1f1b dp8:zero1 tp4:sp +m8")
    assert "vpp: 1 or 16 (from none to one layer on each)" in found.assumed


def test_shares_among_context_ranks() -> None:
    found = language(framework="Megatron-Core", dp="1", cp="16", tp="4", zero_stage="1", global_batch="4")
    assert isinstance(found, MeasuredRun)
    assert "dp1:zero1 cp16:ring tp4:sp" in str(found.plan)


def test_automodel_is_no_megatron() -> None:
    found = language(framework="NeMo AutoModel (FSDP2)")
    assert isinstance(found, MeasuredRun)
    assert (found.trainer, str(found.plan)) == ("fsdp", "dp64:zero3 +recompute:block +bf16")


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ({"offload": "optimizer"}, "+offload:optimizer"),
        ({"offload": "optimizer+weights", "framework": "DeepSpeed"}, "+offload:optimizer,weights"),
        ({"method": "LoRA", "lora_rank": "16"}, "+lora16"),
        ({"method": "LoRA", "lora_rank": "16", "lora_targets": "q_proj,v_proj"}, "+adapt:query,value"),
        ({"method": "QLoRA", "lora_rank": "16"}, "+nf4-dq"),
    ],
)
def test_offload_and_adapters_are_read(cells: dict[str, str], word: str) -> None:
    found = language(**cells)
    assert isinstance(found, MeasuredRun)
    assert word in str(found.plan).split()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8x NDR400", NodeLink("ib-ndr", 8)),
        ("8 x 400G IB", NodeLink("ib-ndr", 8)),
        ("InfiniBand NDR 400 (8 ports)", NodeLink("ib-ndr", 8)),
        ("3.2 Tb/s InfiniBand", NodeLink("ib-ndr", 8)),
        ("InfiniBand HDR 200Gb/s x 4", NodeLink("ib-hdr", 4)),
        ("2x HDR100", NodeLink("ib-edr", 2)),
        ("dual-rail EDR", NodeLink("ib-edr", 2)),
        ("4X EDR IB", NodeLink("ib-edr", 1)),
        ("8 NICs x 200 Gb/s IB", NodeLink("ib-hdr", 8)),
        ("8 ConnectX-7 NICs", NodeLink("roce-400", 8)),
        ("400GbE RoCE x8", NodeLink("roce-400", 8)),
        ("1.6 Tbps RDMA", NodeLink("roce-200", 8)),
        ("100G Ethernet", NodeLink("eth-100", 1)),
        ("10GbE", NodeLink("eth-10", 1)),
        ("EFA 32x100Gb/s", NodeLink("efa2", 32)),
        ("3200 Gb/s EFA", NodeLink("efa2", 32)),
        ("EFA v3 16x200Gb/s", NodeLink("efa3", 16)),
        ("EFA 400Gbps", NodeLink("efa1", 4)),
        ("GPUDirect-TCPX 4x200Gb/s", NodeLink("tcpx", 4)),
        ("mgmt: 1x1GbE; compute: 8x ConnectX-7", NodeLink("roce-400", 8)),
        ("OOB 1GbE, in-band 2x25GbE, compute 8x400Gb/s NDR", NodeLink("ib-ndr", 8)),
        ("NVLink 900 GB/s", None),
        ("8x400G", None),
    ],
)
def test_networks_as_people_write_them(text: str, found: NodeLink | None) -> None:
    assert network(text, 8) == found


@pytest.mark.parametrize(
    ("name", "plan", "trainer"),
    [
        ("ifc-041", "dp8 +fp32", "oneflow"),
        ("ifc-047", "filter8[head]:data +fp32", "oneflow"),
        ("ifc-093", "filter8[head]:data +fp32", "pytorch"),
    ],
)
def test_faces(name: str, plan: str, trainer: str) -> None:
    """A head with a row for each person: all of it on each rank, or split by persons."""
    found = published_vision(name)
    assert isinstance(found, MeasuredRun)
    assert (found.model, str(found.plan), found.trainer) == ("iresnet100:image=112,classes=85744", plan, trainer)


CALL: Line = {
    "id": "mine", "gpu": "H100-80GB-SXM", "n_gpus": "16", "gpus_per_node": "8", "inter_link": "8x400 Gb/s IB NDR",
    "collective": "all_reduce", "bytes": "1073741824", "time_us": "5000",
}  # fmt: skip

PRODUCT: Line = {
    "id": "mine", "gpu": "H100-80GB-SXM", "op": "gemm", "phase": "fwd", "dtype": "BF16", "m": "4096", "n": "4096",
    "k": "4096", "time_ms": "0.25",
}  # fmt: skip


@pytest.mark.parametrize(
    "cells",
    [
        {"collective": "AllReduce"},
        {"collective": "all-reduce"},
        {"bytes": "1G"},
        {"bytes": "1 GiB"},
        {"bytes": "1,073,741,824"},
        {"inter_link": "8x NDR400"},
        {"inter_link": "", "gpus_per_node": ""},
    ],
)
def test_words_of_collectives(cells: dict[str, str]) -> None:
    found = next(collectives.rows([{**CALL, **cells}]))
    assert isinstance(found, MeasuredCall)
    assert found == next(collectives.rows([CALL]))


@pytest.mark.parametrize(
    "cells",
    [{"dtype": "bf16"}, {"dtype": "bfloat16"}, {"op": "GEMM"}, {"op": "matmul"}, {"phase": "forward"}, {"phase": ""}],
)
def test_words_of_kernels(cells: dict[str, str]) -> None:
    found = next(kernels.rows([{**PRODUCT, **cells}]))
    assert isinstance(found, MeasuredCall)
    assert found == next(kernels.rows([PRODUCT]))


@pytest.mark.parametrize(("phase", "meant"), [("dgrad", "bwd_input"), ("wgrad", "bwd_weight")])
def test_words_of_gradients(phase: str, meant: str) -> None:
    found, other = (next(kernels.rows([{**PRODUCT, "phase": word}])) for word in (phase, meant))
    assert isinstance(found, MeasuredCall) and found == other


def test_a_network_that_nobody_describes_is_a_reason() -> None:
    found = next(collectives.rows([{**CALL, "inter_link": "Slingshot-11 4x200Gb/s"}]))
    assert found == NotScored("mine", "no link is known for Slingshot-11 4x200Gb/s")


def published_vision(name: str) -> MeasuredRun | NotScored:
    line = next(line for line in csv_lines(published.FOLDER / "cnn_measured.csv") if line["id"] == name)
    return next(cnn.rows([line]))


def test_micro_batches_that_are_not_stated_are_each_of_the_usual_ones() -> None:
    found = published_vision("pdlf-103")
    assert isinstance(found, MeasuredRun)
    plans = [str(plan) for plan in (found.plan, *found.others)]
    assert plans[::2] == [f"pp4:gpipe +m{m} +fp32" for m in (4, 8, 16)]
    assert plans[1::2] == [f"pp4:gpipe +m{m} +recompute:full +fp32" for m in (4, 8, 16)]
    assert "4, 8, 16 micro-batches, with recompute and without" in found.assumed


def test_amoebanet() -> None:
    found = published_vision("tgp-018")
    assert isinstance(found, MeasuredRun)
    said = (found.model, str(found.plan), found.job.batch)
    assert said == ("amoebanet:repeats=6,filters=256,image=224", "pp8:gpipe +m4 +recompute:full +fp32", 480)
