"""Measured runs as settings: every line of every study is accounted for, and says what it was."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from foretell.cli.command import cli
from foretell.cli.verbs.validate import otherwise
from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.model.analysis import analyze
from foretell.model.matrices import trained_elements
from foretell.model.resize import ANY
from foretell.model.source import load
from foretell.oracle.predict import Prediction, predict
from foretell.plan.fitness import refusals
from foretell.plan.setting import Setting
from foretell.plan.trainer import trainer
from foretell.validation import published, score
from foretell.validation.evaluate import compare, memory_like, scores
from foretell.validation.hardware_words import cluster
from foretell.validation.network_words import NodeLink, network
from foretell.validation.score import ScoredPair
from foretell.validation.sources import by_memory
from foretell.validation.studies import cnn, llm, ultrascale, vtrain
from foretell.validation.study import GIB, MeasuredPeak, MeasuredRun, NotScored, Study, Unmapped, read

PUBLISHED = {path.stem: path for path in published.files()}


@pytest.fixture(scope="module")
def studies() -> dict[str, Study]:
    return {name: read(path) for name, path in PUBLISHED.items()}


def table(name: str) -> list[dict[str, str]]:
    with PUBLISHED[name].open(newline="") as file:
        return list(csv.DictReader(file))


def one_row(study: Study, name: str) -> MeasuredRun:
    return next(row for row in study.rows if row.id == name)


# every line is accounted for


@pytest.mark.parametrize(
    ("name", "family", "least"),
    [
        ("vtrain_single", "vtrain", 360),
        ("vtrain_multi", "vtrain", 44),
        ("ultrascale_h100", "ultrascale", 1078),
        ("llm_measured", "llm", 745),
        ("finetune_measured", "finetune", 97),
        ("cnn_measured", "cnn", 3_820),
        ("paradl", "paradl", 106),
    ],
)
def test_every_line_is_a_row_or_has_a_reason(studies: dict[str, Study], name: str, family: str, least: int) -> None:
    study = studies[name]
    assert study.family == family
    assert study.total == len(table(name))
    assert len(study.rows) >= least, "fewer runs are mapped than were before"
    assert all(item.reason for item in study.not_scored)
    assert not study.calls
    assert len({row.id for row in study.rows}) == len(study.rows)


def test_a_row_has_something_to_compare(studies: dict[str, Study]) -> None:
    for study in studies.values():
        for row in study.rows:
            assert row.step_seconds > 0 or row.memory or row.outcome != "ok", row.id
            assert row.job.batch % row.plan.microbatches == 0, row.id
            assert catalog.cluster(row.cluster).ranks == row.plan.ranks, row.id
            assert trainer(row.trainer).name == row.trainer, row.id


@pytest.mark.slow
def test_runs_that_finished_are_not_refused(studies: dict[str, Study]) -> None:
    """A sample of every study: loading all graphs takes a minute."""
    refused: list[str] = []
    for study in studies.values():
        ran = [row for row in study.rows if row.outcome == "ok"]
        for row in ran[:: max(1, len(ran) // 15)]:
            graph = load(row.model, row.job.batch // row.plan.microbatches)
            setting = Setting(graph, row.job, row.plan, trainer(row.trainer))
            refused += [f"{row.id}: {refusal}" for refusal in refusals(setting, catalog.cluster(row.cluster))]
    assert not refused


def test_models_have_the_published_parameters(studies: dict[str, Study]) -> None:
    said = {line["id"]: float(line["n_params_b"] or 0) for line in table("llm_measured")}
    models = {row.model: row.id for row in studies["llm_measured"].rows if said[row.id]}
    for model, name in list(models.items())[::20]:
        off = 0.02 if "experts=384" in model else 0.01  # Kimi-K2: 1.04 T in its report, 1,026 B in its files
        assert analyze(load(model)).parameters / 1e9 == pytest.approx(said[name], rel=off), model


# what lines become


def test_vtrain_line() -> None:
    (row,) = vtrain.rows([table("vtrain_multi")[-1]])
    assert isinstance(row, MeasuredRun)
    assert str(row.plan) == "pp16:1f1b dp4 tp8 +m16 +recompute:block +fp16"
    assert row.cluster == "64x8xa100-80,4xib-hdr" and row.trainer == "megatron-deepspeed"
    assert row.step_seconds == pytest.approx(24.1699) and row.job.batch == 1536


def test_ultrascale_lines(studies: dict[str, Study]) -> None:
    row = one_row(studies["ultrascale_h100"], "1B-8-dp2-pp2-tp2-zero1-b8-m16")
    assert str(row.plan) == "pp2:1f1b dp2:zero1 tp2:sp +m16 +bf16" and row.cluster == "aws-p5"
    assert row.memory == (MeasuredPeak(47.8 * GIB, "reserved", "first stage"),)
    assert row.step_seconds == pytest.approx(256 * 4096 / (35325 * 8))
    tied = {row.id.split("-")[0]: "tied=true" in row.model for row in studies["ultrascale_h100"].rows}
    assert tied == {"1B": True, "3B": True, "8B": False, "80B": False}
    assert all("heads=32" in row.model for row in studies["ultrascale_h100"].rows if row.id.startswith("3B"))
    outcomes = Counter(row.outcome for row in studies["ultrascale_h100"].rows)
    assert outcomes == {"ok": 659, "failed": 419}


@pytest.mark.parametrize(
    ("name", "plan", "where", "runs"),
    [
        ("llm-foundry-0001", "dp512:zero3 +recompute:block +bf16", "512xh100", "llm-foundry"),
        (
            "megatron-sc21-0007",
            "pp8:interleaved,v2 dp24 tp8 +m48 +recompute:block +fp16",
            "1536xa100-80",
            "megatron-lm-2021",
        ),
        (
            "korthikanti-2022-0006",
            "pp35:interleaved,v3 tp8:sp +m280 +recompute:attention +fp16",
            "280xa100-80",
            "megatron-lm-2023",
        ),
    ],
)
def test_llm_lines(studies: dict[str, Study], name: str, plan: str, where: str, runs: str) -> None:
    row = one_row(studies["llm_measured"], name)
    assert (str(row.plan), row.trainer) == (plan, runs)
    assert row.cluster.startswith(where)


def test_time_from_flops(studies: dict[str, Study]) -> None:
    """GPT 145.6B of SC21: 148 TFLOP/s on 1,536 GPUs, batch 2,304, by their equation 3."""
    row = one_row(studies["llm_measured"], "megatron-sc21-0007")
    line = next(line for line in table("llm_measured") if line["id"] == row.id)
    work = 96 * 2304 * 2048 * 80 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 80 * 12288))
    assert row.step_seconds == pytest.approx(work / (float(line["tflops_per_gpu"]) * 1e12 * 1536))


def test_layers_of_a_split_with_embeddings(studies: dict[str, Study]) -> None:
    row = next(row for row in studies["llm_measured"].rows if row.id.startswith("mlperf") and "layers=126" in row.model)
    assert re.search(r"split=1/2x[0-9]+/1\b", str(row.plan))


def test_cnn_lines(studies: dict[str, Study]) -> None:
    study = studies["cnn_measured"]
    one = one_row(study, "dle-002")
    assert (one.model, str(one.plan), one.cluster) == ("resnet50:image=224,dtype=fp16", "dp1 +amp_fp16", "a100-80")
    assert one.step_seconds == pytest.approx(256 / 2470)
    paper = one_row(study, "pdlt-006")
    assert (paper.model, str(paper.plan)) == ("resnet50:image=226,strided_1x1=true", "dp16 filter4 +fp32")
    assert paper.trainer == "chainer"
    assert paper.cluster == "abci:64"
    pipeline = one_row(study, "tgp-003")
    assert str(pipeline.plan) == "pp2:gpipe +m1667 +recompute:full +fp32"
    assert pipeline.job.batch == 25005 and pipeline.step_seconds == pytest.approx(25005 / 135.539)


@pytest.mark.parametrize(
    ("name", "runs", "precision"),
    [
        ("timm-001", "pytorch-1", "amp_fp16"),
        ("timm-081", "pytorch-1-channels-last", "amp_fp16"),
        ("dle-211", "pytorch-1", "tf32"),
        ("dle-212", "pytorch-1-channels-last", "amp_fp16"),  # NVIDIA's SSD lays channels last in 16 bits
        ("mlp-124", "pytorch-1-channels-last", "fp16"),
        ("ppf-012", "paddlepaddle-nhwc", "fp16"),  # level O2
        ("ppf-047", "tensorflow-xla", "amp_fp16"),
        ("ppf-048", "nvidia-bert", "fp16"),  # a container of 2021
        ("mil-028", "pytorch", "amp_fp16"),
        ("mil-075", "pytorch", "amp_bf16"),
        ("lam-009", "pytorch-1", "tf32"),  # NVIDIA's containers allow it
        ("mil-295", "pytorch", "fp32"),  # TF32 that the device's libraries did not have
        ("lam-112", "nvidia-bert", "fp16"),
        ("lam-221", "nvidia-bert-2020", "fp16"),
        ("dle-101", "mxnet-nhwc", "fp16"),
        ("dle-102", "mxnet", "tf32"),
        ("dle-578", "tensorflow-xla", "amp_fp16"),
        ("dlp-066", "tensorflow", "fp32"),
        ("tfb-134", "pytorch", "fp32"),
    ],
)
def test_software_by_framework_and_year(studies: dict[str, Study], name: str, runs: str, precision: str) -> None:
    found = one_row(studies["cnn_measured"], name)
    assert (found.trainer, f"+{precision}" in str(found.plan).split()) == (runs, True)


def test_rows_say_that_their_loss_is_not_in_chunks(studies: dict[str, Study]) -> None:
    """torchtune's own table switches it on with its third row."""
    found = {row.id: row.trainer for row in studies["finetune_measured"].rows if row.id.startswith("torchtune-flags")}
    assert [name for name, runs in found.items() if runs == "pytorch"] == [f"torchtune-flags-00{at}" for at in (1, 2)]
    assert set(found.values()) == {"pytorch", "torchtune"}


def test_policies_that_sources_name(studies: dict[str, Study]) -> None:
    """Batch norms over all ranks, and steps that are recorded."""
    many, one, recorded = (
        str(one_row(studies["cnn_measured"], name).plan) for name in ("dle-173", "dle-171", "mlp-124")
    )
    assert "+syncbn" in many and "+syncbn" not in one and "+captured" in recorded


def test_transformer_xl(studies: dict[str, Study]) -> None:
    """Parameters as its configuration gives them (NVIDIA DeepLearningExamples), a step of 192 tokens a sequence."""
    found = one_row(studies["cnn_measured"], "dle-725")
    assert (found.trainer, "+fp16" in str(found.plan).split()) == ("pytorch-1", True)
    assert found.step_seconds == pytest.approx(32 * 192 / 59961)
    layer = 5 * 512**2 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512  # products of attention, feed-forward, two norms
    words = 267_735 * 512 + 19_997 + 3 * 513  # the table, which scores too; biases, and three clusters of rarer words
    assert trained_elements(load("transformer-xl-base", 2)) == words + 16 * layer + 2 * 512


def test_sequences_of_unknown_lengths(studies: dict[str, Study]) -> None:
    """NVIDIA's PyTorch scripts sort long sequences into bins; those of 128 tokens, and TensorFlow's, are as stated."""
    reasons = {item.id: item.reason for item in studies["cnn_measured"].not_scored}
    assert "bins" in reasons["dle-442"]
    assert one_row(studies["cnn_measured"], "dle-430") and one_row(studies["cnn_measured"], "dle-584")


def test_paradl_lines(studies: dict[str, Study]) -> None:
    found = one_row(studies["paradl"], "paradl-001")
    assert (found.model, str(found.plan), found.job.batch) == (
        "resnet152:image=226,strided_1x1=true",
        "dp16 +fp32",
        1024,
    )
    assert (found.step_seconds, found.claimed_seconds) == (0.805, 0.79)


# blanks are reasons


@pytest.mark.parametrize("column", ["global_batch", "gpu", "n_gpus", "seq_len"])
def test_a_blank_without_a_default_is_a_reason(column: str) -> None:
    complete = table("llm_measured")[0]
    assert isinstance(next(llm.rows([complete])), MeasuredRun)
    assert next(llm.rows([{**complete, column: ""}])) == NotScored(complete["id"], f"{column} is not stated")


@pytest.mark.parametrize("column", ["model", "precision", "gpu", "n_gpus"])
def test_a_blank_of_the_other_table(column: str) -> None:
    complete = next(line for line in table("cnn_measured") if line["id"] == "dle-002")
    assert next(cnn.rows([{**complete, column: ""}])) == NotScored("dle-002", f"{column} is not stated")


def test_an_optimizer_that_is_not_stated_is_the_usual_one() -> None:
    complete = next(line for line in table("cnn_measured") if line["id"] == "dle-002")
    found = next(cnn.rows([{**complete, "optimizer": ""}]))
    assert isinstance(found, MeasuredRun) and found.timed == "step"
    assert (found.job.optimizer, found.assumed) == ("momentum", ("optimizer momentum",))


def test_passes_without_the_optimizer(studies: dict[str, Study]) -> None:
    """Rows that timed forward and backward alone are compared with just that."""
    study = studies["cnn_measured"]
    chosen = [row for row in study.rows if row.timed == "passes"]
    assert {row.subsets[0] for row in chosen} == {"ryu", "pyc", "jcj", "cnb"}
    row = next(row for row in chosen if row.model.startswith("resnet18"))
    whole, passes = compare([msgspec.structs.replace(row, timed="step"), row], predict)
    assert isinstance(whole.prediction, Prediction) and passes.prediction is not None
    without = whole.prediction.step_seconds - whole.prediction.breakdown["optimizer"]
    assert passes.prediction.step_seconds == pytest.approx(without)
    low, high = passes.prediction.interval
    assert low < without < high < whole.prediction.interval[1]


def test_models_of_packages(studies: dict[str, Study]) -> None:
    """By their names of then: what was renamed since is found, and before PyTorch 2 scores were written out."""
    models = {row.id: row.model for row in studies["cnn_measured"].rows}
    of = {line["model"]: models.get(line["id"]) for line in table("cnn_measured") if line["id"] in models}
    assert of["regnety_032"] == "timm/regnety_032:image=224,attention=math,dtype=fp16"
    assert of["swsl_resnet18"] == "resnet18:image=224,dtype=fp16"
    assert of["RegNetX-400MF"] == "timm/regnetx_004:image=224,attention=math"
    assert of["shufflenet_v2_x1_0"].startswith("torchvision/shufflenet_v2_x1_0:image=224")  # type: ignore[union-attr]
    assert of["nnU-Net 3D"].startswith("nnunet-3d")  # type: ignore[union-attr]


def test_parameters_of_packages_are_those_published(studies: dict[str, Study]) -> None:
    """Of every traced model that a row gives the parameters of, in millions to two digits."""
    said = {line["id"]: line["params_m"] for line in table("cnn_measured")}
    wanted = {
        row.model.partition(",dtype")[0]: said[row.id] for row in studies["cnn_measured"].rows if "/" in row.model
    }
    counted = {model: trained_elements(load(model, ANY)) / 1e6 for model, text in wanted.items() if text}
    wrong = {
        model: (count, wanted[model])
        for model, count in counted.items()
        if abs(count - float(wanted[model])) > max(0.051, 0.005 * count)
    }
    assert len(counted) > 350 and not wrong


def test_ranks_and_batches_must_multiply() -> None:
    complete = table("llm_measured")[0]
    wrong_ranks = next(llm.rows([{**complete, "tp": "2", "sequence_parallel": "0"}]))
    assert wrong_ranks == NotScored(complete["id"], "the ranks of the axes do not multiply to the GPUs")
    wrong_batch = next(llm.rows([{**complete, "global_batch": "4097"}]))
    assert wrong_batch == NotScored(complete["id"], "micro-batches do not add up to the batch")


@given(
    st.dictionaries(
        st.sampled_from(sorted(llm.COLUMNS)), st.sampled_from(["", "0", "1", "-3", "2.5", "nan", "x", "1e999"])
    )
)
def test_no_line_is_a_surprise(changes: dict[str, str]) -> None:
    complete = {**table_of_one(), **changes}
    assert isinstance(next(llm.rows([complete])), MeasuredRun | NotScored)


def table_of_one() -> dict[str, str]:
    if not _FIRST:
        _FIRST.update(table("llm_measured")[0])
    return _FIRST


_FIRST: dict[str, str] = {}


# devices and networks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8x400 Gb/s IB NDR", NodeLink("ib-ndr", 8)),
        ("4x100 Gb/s EDR IB", NodeLink("ib-edr", 4)),
        ("1600 Gbps node-to-node RoCE", NodeLink("roce-200", 8)),
        ("400 Gb/s RDMA per GPU", NodeLink("roce-400", 8)),
        ("8x ConnectX-6 IB HDR 200Gb/Sec", NodeLink("ib-hdr", 8)),
        ("1x Ethernet 40Gb/Sec, 8x ConnectX-6 IB HDR 200Gb/Sec", NodeLink("ib-hdr", 8)),
        ("InfiniBand 100 Gb/sec (4X EDR) x10 NIC", NodeLink("ib-edr", 10)),
        ("InfiniBand EDR 100 Gb/s, one NIC per node", NodeLink("ib-edr", 1)),
        ("4x Omni-Path 100 Gb/s", NodeLink("opa-100", 4)),
        ("10 Gb/s Ethernet (p2.8xlarge class; not restated)", NodeLink("eth-10", 1)),
        ("Storage: 2x ConnectX-6 200Gb/s, Compute: 8x ConnectX-7 400Gb/s NDR", NodeLink("ib-ndr", 8)),
        ("Compute: 8x400Gb/s IB NDR; Storage: 2x200Gb/s IB HDR", NodeLink("ib-ndr", 8)),
        ("Storage: 2x200Gb/s IB HDR, 1x100GbE; Compute: 8x400Gb/s RoCE", NodeLink("roce-400", 8)),
        ("1x ConnectX-6 Dx 100GbE management, 8x ConnectX-7 400Gb/s", NodeLink("roce-400", 8)),
        ("1x Ethernet 10Gb/s (management), 8x ConnectX-7 400Gb/s RoCE", NodeLink("roce-400", 8)),
        ("BF3 200Gbps for NS and 2xBF3 400Gbps for EW", NodeLink("roce-400", 2)),
        ("8x BlueField-3", NodeLink("roce-400", 8)),
        ("8x BlueField-3 400Gb/s Ethernet", NodeLink("roce-400", 8)),
        ("8x NVIDIA ConnectX-7 400Gb/s InfiniBand + 2x BlueField-3 (storage)", NodeLink("ib-ndr", 8)),
        ("2x100GbE RoCE, 8x400GbE RoCE", NodeLink("roce-400", 8)),
        ("Storage: 2x ConnectX-6 200Gb/s", None),
        ("RoCEv2 (rate not stated)", None),
        ("400/800 Gbps", None),
        ("", None),
    ],
)
def test_networks(text: str, found: NodeLink | None) -> None:
    assert network(text, 8) == found


def test_clusters() -> None:
    assert cluster("H100-96GB-HBM2e-SXM (500W cap)", 16, 8).text == "16xh100-500w"
    assert cluster("B200-180GB-SXM (power limited)", 8, 8).text == "8xb200-750w"
    assert cluster("B200-180GB-SXM", 8, 8).text == "8xb200"
    assert cluster("A100-PCIE-40GB (250W)", 4, 4).text == "4xa100-pcie-40"
    assert cluster("V100-SXM2-16GB", 16, 8, "NVLink2 hybrid cube mesh", "IB EDR 1x100Gb/s per node") == (
        "2x8xv100-16,nvlink2-mesh,1xib-edr",
        (),
    )
    assert cluster("RTX 3090 24GB", 1, 1).text == "rtx3090"
    assert cluster("H100-80GB-SXM", 16, 8).subsets == ("network not stated",)
    for gpu, ranks in (("Cloud TPU v3", 1), ("H100", 12)):
        with pytest.raises(Unmapped):
            cluster(gpu, ranks, 8)


# runs with a fault


def test_the_list_of_faults_is_frozen() -> None:
    listed = (published.FOLDER / "ultrascale_cluster_faults.txt").read_text().split()
    assert ultrascale.cluster_faults(table("ultrascale_h100")) == set(listed)
    assert len(listed) == 157


def test_faults_need_no_prediction_and_no_other_model() -> None:
    lines = table("ultrascale_h100")
    alone = [line for line in lines if line["model"] == "3B"]
    whole = {name for name in ultrascale.cluster_faults(lines) if name.startswith("3B")}
    assert ultrascale.cluster_faults(alone) == whole


# any file with these columns


def test_device_steps(tmp_path: Path) -> None:
    step: dict[str, Any] = {
        "model": "llama:layers=16,hidden=2048,heads=32,kv_heads=8,ffn=8192,vocab=32000", "batch": 4, "seq": 2048,
        "precision": "bf16:pure", "optimizer": "adamw", "compile": False, "channels_last": False, "recompute": "none",
        "device": "NVIDIA H200", "fwd_ms": 50.0, "bwd_ms": 100.0, "opt_ms": 5.0, "step_ms": 155.0, "wall_ms": 156.0,
        "peak_gib": 30.0, "static_gib": 10.0,
    }  # fmt: skip
    image = {**step, "model": "resnet50", "image": 224, "precision": "tf32", "compile": True, "recompute": "block"}
    del image["seq"]
    unsaid = {key: value for key, value in step.items() if key != "recompute"}
    unknown = {**step, "model": "nobody"}
    file = tmp_path / "steps.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in (step, image, unsaid, unknown)))
    study = read(file)
    first, second = study.rows
    assert study.family == "device_steps"
    assert first.model.endswith("vocab=32000,seq=2048,dtype=bf16") and str(first.plan) == "dp1 +bf16:pure"
    assert (first.cluster, first.trainer, first.step_seconds) == ("h200", "pytorch", pytest.approx(0.156))
    assert first.memory == (MeasuredPeak(30.0 * GIB, "allocated", "worst"),)
    assert (second.model, str(second.plan)) == ("resnet50:image=224", "dp1 +recompute:block +tf32")
    assert second.trainer == "pytorch-compiled"
    assert [item.reason for item in study.not_scored] == [
        "recompute is not stated",
        "cannot be written: no model is called 'nobody'",
    ]


def test_columns_recognise_a_file(tmp_path: Path) -> None:
    lines = table("vtrain_multi")[:2]
    file = tmp_path / "other.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, [*lines[0], "note"])
        writer.writeheader()
        writer.writerows([{**line, "note": "more"} for line in lines])
    assert (read(file).name, read(file).family, read(file).total) == ("other", "vtrain", 2)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="no study has these columns"):
        read(file)
    file.write_text("")
    with pytest.raises(BadInput, match="no run"):
        read(file)


# scores


def many(microbatches: str) -> dict[str, str]:
    return {"grad_accum": microbatches}


def test_a_run_that_needs_no_more_than_one_that_finished() -> None:
    """It has no larger micro-batches, no more of them in flight, and as many ranks or more that share layers."""
    finished = {"model": "1B", "dp": "4", "pp": "2", "tp": "2", "micro_batch": "4", "grad_accum": "8", "zero": "0"}
    for less in ({}, {"tp": "4"}, {"micro_batch": "2"}, {"grad_accum": "1"}, {"dp": "1"}, {"dp": "16"}, many("64")):
        assert ultrascale.needs_no_more(finished | less, finished), less
    for more in ({"tp": "1"}, {"micro_batch": "8"}, {"pp": "4"}, {"model": "3B"}, {"zero": "1"}):
        assert not ultrascale.needs_no_more(finished | more, finished), more
    for key in ultrascale.LAYOUT:
        assert not ultrascale.needs_no_more(finished | {key: ""}, finished), key
    deep = finished | {"pp": "16"}
    assert ultrascale.needs_no_more(deep | many("4"), deep) and not ultrascale.needs_no_more(deep | many("9"), deep)
    assert not ultrascale.needs_no_more(finished, finished | {"dp": "1"})  # buckets
    alone = finished | {"pp": "1"}
    assert not ultrascale.needs_no_more(alone, alone | many("1"))  # gradients that add up
    shared = finished | {"zero": "1"}
    assert ultrascale.needs_no_more(shared | {"dp": "8"}, shared)
    assert not ultrascale.needs_no_more(shared | {"dp": "2"}, shared)


def test_runs_that_need_no_more_printed_no_more() -> None:
    """The rule against memory that was measured, of pairs that finished; where it says nothing, half need more."""
    lines = list(csv.DictReader(published.files("ultrascale_h100")[0].read_text().splitlines()))
    ran = [one for one in lines if one["outcome"] == "ok" and float(one["mem_gb"] or 0)]
    pairs = [(one, other) for one in ran for other in ran if one is not other and one["model"] == other["model"]]
    more: dict[bool, list[bool]] = {True: [], False: []}
    for one, other in pairs:
        more[ultrascale.needs_no_more(one, other)].append(float(one["mem_gb"]) > 1.05 * float(other["mem_gb"]))
    assert len(more[True]) > 3000 and sum(more[True]) / len(more[True]) < 0.006
    assert sum(more[False]) / len(more[False]) > 0.4


def test_failures_that_memory_does_not_explain_are_apart(studies: dict[str, Study]) -> None:
    failed = [row for row in studies["ultrascale_h100"].rows if row.outcome != "ok"]
    apart = [row for row in failed if not by_memory(row)]
    assert (len(failed), len(apart)) == (419, 28)


@dataclass(frozen=True)
class Told:
    """A stand-in for a prediction."""

    step_seconds: float
    memory: Any
    fits: bool = True
    usable: float = 80e9
    most: float = 80e9
    chance: float = 1.0

    @property
    def memory_band(self) -> dict[str, float]:
        return {}

    @property
    def interval(self) -> tuple[float, float]:
        return self.step_seconds, self.step_seconds


@dataclass(frozen=True)
class Used:
    allocated: float = 80.0
    reserved: float = 90.0
    device: float = 100.0
    by_stage: tuple[float, ...] = (60.0, 100.0)


def test_fits_are_told_with_failures_that_are_apart_and_without(studies: dict[str, Study]) -> None:
    """Whoever predicts that all fit has every failure wrong, and the count without some of them is no better for it."""
    failed = [row for row in studies["ultrascale_h100"].rows if row.outcome != "ok" and row.plan.ranks == 8]
    known, others = ([row for row in failed if by_memory(row) is here] for here in (True, False))
    told = "\n".join(otherwise(*(compare(some, lambda setting, on: Told(1.0, Used())) for some in (known, others))))
    assert others and f"{len(others)} failures are not counted" in told
    wrong = sum(one.prediction is not None for one in compare(known, lambda setting, on: Told(1.0, Used())))
    assert f"{wrong} of the {len(known)} that are counted, {wrong + len(others)} of all {len(failed)}." in told
    assert otherwise([], []) == []


def test_the_same_number_of_the_same_rank() -> None:
    assert memory_like(Used(), MeasuredPeak(1.0, "allocated", "worst")) == 80.0
    assert memory_like(Used(), MeasuredPeak(1.0, "device", "first stage")) == 60.0
    assert memory_like(Used(), MeasuredPeak(1.0, "reserved", "first stage")) == 50.0
    assert memory_like(Used(by_stage=(100.0,)), MeasuredPeak(1.0, "reserved", "first stage")) == 90.0


def test_a_perfect_oracle_has_no_error(studies: dict[str, Study]) -> None:
    """Runs in their order; refusals, reasons and scores add up to all lines."""
    study = studies["ultrascale_h100"]
    chosen = [row for row in study.rows if row.id.startswith("1B-16-")]
    truth = {str(row.plan) + row.cluster + row.model: row for row in chosen if row.outcome == "ok"}

    def perfect(setting: Any, on: Any) -> Told:
        row = truth.get(str(setting.plan) + on.text + setting.graph.name)
        return Told(row.step_seconds if row else 1.0, Used(), fits=row is not None)

    compared = compare(chosen, perfect)
    assert [one.row for one in compared] == chosen
    found = scores(study, compared)
    assert found.total == found.n + found.refused + found.not_scored
    assert found.refused == sum(found.refused_rules.values()) > 0 and found.refused_though_ran == 0
    assert found.time is not None and found.time.mape == pytest.approx(0, abs=1e-12)
    assert found.rank_correlation == pytest.approx(1) and found.regret is not None and found.regret.max == 0
    assert found.fits is not None and found.fits.accuracy == 1.0  # plans that finished once and failed once are apart
    assert found.inside == found.subsets["1B"].inside == 1.0
    assert {"healthy", "1B"} <= set(found.subsets)


pairs = st.lists(st.builds(ScoredPair, st.floats(0.1, 100), st.floats(0.1, 100)), min_size=1, max_size=30)


@given(pairs)
def test_errors_are_what_they_say(some: list[ScoredPair]) -> None:
    found = score.errors(some)
    assert found is not None and found.n == len(some)
    assert abs(found.bias) <= found.mape + 1e-12
    assert found.median <= found.p90 + 1e-12
    doubled = score.errors(ScoredPair(2 * pair.predicted, 2 * pair.measured) for pair in some)
    assert doubled is not None and doubled.mape == pytest.approx(found.mape)


@given(pairs)
def test_choosing_never_beats_the_best(some: list[ScoredPair]) -> None:
    found = score.regret([some])
    assert found is None or found.max >= 0
    right = score.regret([[ScoredPair(pair.measured, pair.measured) for pair in some]])
    assert right is None or right.max == 0
    order = score.spearman(some) if len(some) > 1 else None
    assert order is None or -1.0000001 <= order <= 1.0000001


def test_known_scores() -> None:
    found = score.errors([ScoredPair(1.1, 1), ScoredPair(0.8, 1), ScoredPair(1.0, 1)])
    assert found is not None
    assert (found.mape, found.median, found.p90, found.bias) == pytest.approx((0.1, 0.1, 0.18, -0.1 / 3))
    assert score.spearman([ScoredPair(1, 10), ScoredPair(2, 30), ScoredPair(3, 20)]) == pytest.approx(0.5)
    assert score.regret([[ScoredPair(1, 12), ScoredPair(2, 10)], [ScoredPair(1, 10)]]) == score.Regret(
        pytest.approx(0.2), pytest.approx(0.2)
    )
    told = [score.Verdict(True, True, 0.9), score.Verdict(False, False, 0.2), score.Verdict(True, False, 0.6)]
    assert score.fits(told) == score.FitVerdicts(
        3, pytest.approx(2 / 3), 2, 1, pytest.approx(0.75), pytest.approx((0.01 + 0.04 + 0.36) / 3)
    )
    one = score.fits(told[:1])
    assert one is not None and one.balanced is None
    assert score.errors([]) is None and score.fits([]) is None and score.rank_correlation([]) is None


def test_the_answer_for_programs() -> None:
    ran = CliRunner().invoke(cli, ["validate", "--study", "vtrain_multi", "--limit", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    (found,) = json.loads(ran.stdout)["studies"]
    assert {"study", "total", "n", "refused", "not_scored", "time", "memory", "fits", "rank_correlation"} <= set(found)
    assert {"regret", "subsets"} <= set(found)
    assert {"mape", "median", "p90", "bias"} <= set(found["time"]) and {"n", "accuracy"} <= set(found["fits"])
    assert found["total"] == found["n"] + found["refused"] + found["not_scored"] == 2
