"""Which trainer a published run of a vision model or BERT ran under, from its framework, year and words on layouts."""

from __future__ import annotations

import re
from typing import Final

from foretell.validation.studies._cnn_models import source
from foretell.validation.study import Line, Unmapped, whole_or

FRAMEWORKS: Final[tuple[tuple[str, str], ...]] = (
    (r"chainer", "chainer"),
    (r"torchgpipe", "pytorch"),
    (r"deepspeed transformer kernel", ""),
    (r"deepspeed", "deepspeed"),
    (r"neon|libai|caffe", ""),
    (r"torch7|cudnn r\d torch", "pytorch-1"),  # which took over its kernels and its calls of cuDNN
    (r"paddle", "paddlepaddle"),
    (r"oneflow", "oneflow"),
    (r"mxnet", "mxnet"),
    (r"tensorflow.*xla", "tensorflow-xla"),
    (r"tensorflow", "tensorflow"),
    (r"horovod", "horovod"),
    (r"pytorch", "pytorch"),
)
"""Pattern to trainer, the first that is found; empty for frameworks that no trainer describes."""


THIS_YEAR: Final = 2026
"""Of runs that do not say when they were: as the software is now."""


def trainer_of(line: Line) -> str:
    framework = line["framework"].lower()
    found = next((name for pattern, name in FRAMEWORKS if re.search(pattern, framework)), "")
    if not found:
        raise Unmapped(f"no trainer describes {line['framework'] or 'a blank framework'}")
    if found == "pytorch":
        return _pytorch(line)
    if found == "mxnet" and _fused_norms(line):
        return "mxnet-nhwc"
    if found == "paddlepaddle" and line["precision"] == "AMP" and not line["model"].startswith("BERT"):
        return "paddlepaddle-nhwc"
    if found == "tensorflow" and re.search(COMPILED, line.get("source_ref", "")):
        return "tensorflow-xla"
    beyond = found in ("horovod", "mxnet", "tensorflow") and line["strategy"] not in ("single", "data")
    return "pytorch" if beyond else found  # MLPerf's spatial split and TensorFlow's servers were written by hand


COMPILED: Final = r"PaddlePaddle/Perf@\w+:Bert/"
"""Sources of TensorFlow runs that had XLA on, as their report says (Bert/OtherReports/TensorFlow/README.md)."""


def _pytorch(line: Line) -> str:
    """PyTorch as it was in a year; NVIDIA's scripts of BERT are a trainer of their own."""
    if year_of(line) >= 2023:
        return "pytorch-channels-last" if _channels_last(line) else "pytorch"
    if line["model"].startswith("BERT"):
        return "nvidia-bert-2020" if year_of(line) <= 2020 else "nvidia-bert"
    return "pytorch-1-channels-last" if _channels_last(line) else "pytorch-1"


CONTAINERS: Final = {("ppf", "NGC PyTorch"): 2021}
"""Years of containers that reports name elsewhere: 21.03 and 21.11 (PaddlePaddle/Perf, OtherReports/PyTorch)."""


def year_of(line: Line) -> int:
    """The year of the software: a container has it in its name."""
    container = re.search(r"NGC (\d\d)\.\d\d", line["framework"])
    named = CONTAINERS.get((source(line), line["framework"]))
    return 2000 + int(container[1]) if container else named or whole_or(line, "year", THIS_YEAR)


def _fused_norms(line: Line) -> bool:
    """NVIDIA's MXNet in 16 bits: scripts and MLPerf's train with channels last and norms that take in what follows."""
    return bool(re.search(r"NGC|NVIDIA", line["framework"])) and line["precision"].startswith(("AMP", "FP16"))


LAST_IN_16_BITS: Final = r"ConvNets/efficientnet|PyTorch/Detection/SSD|training_results_v.*/ssd$"
"""Files of sources whose scripts lay channels last where products run in 16 bits: NVIDIA DeepLearningExamples (README
of EfficientNet; SSD's main.py, --data-layout), MLPerf's detectors (run_and_time.sh, --nhwc; train.py, --data-layout)"""


def _channels_last(line: Line) -> bool:
    """Whether the source says so, and does not say that it is only for 16 bits when the run is in 32."""
    if re.search(LAST_IN_16_BITS, line.get("source_ref", "")) and line["precision"].startswith(("AMP", "FP16")):
        return True
    said = re.search(r"channels.last|NHWC(?P<amp> for AMP)?", f"{line['framework']} {line.get('comment', '')}")
    return bool(said) and not (said["amp"] and line["precision"] in ("FP32", "TF32"))
