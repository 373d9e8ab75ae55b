"""What a convolution's kernels take from the allocator beside their results, on a GPU: the workspace of cuDNN.

    python studies/h200_workspace/run.py > studies/h200_workspace/workspaces.jsonl

A line a convolution, pass and precision: bytes at the fullest moment of the call, less what was there before and less
what it gives back.
"""

from __future__ import annotations

import functools
import itertools
import json

import torch

# (name, batch, channels, filters, image, kernel, stride)
LAYERS = (
    ("resnet18.conv1", 256, 3, 64, 128, 7, 2),
    ("resnet18.layer1", 256, 64, 64, 32, 3, 1),
    ("resnet18.layer2.0", 256, 64, 128, 32, 3, 2),
    ("resnet18.layer2", 256, 128, 128, 16, 3, 1),
    ("resnet18.layer3.0", 256, 128, 256, 16, 3, 2),
    ("resnet18.layer3", 256, 256, 256, 8, 3, 1),
    ("resnet18.layer4.0", 256, 256, 512, 8, 3, 2),
    ("resnet18.layer4", 256, 512, 512, 4, 3, 1),
    ("resnet18.downsample", 256, 64, 128, 32, 1, 2),
    ("resnet50.1x1", 64, 256, 64, 56, 1, 1),
    ("resnet50.3x3", 64, 64, 64, 56, 3, 1),
    ("resnet50.3x3.2", 64, 128, 128, 28, 3, 1),
    ("resnet50.1x1.2", 64, 128, 512, 28, 1, 1),
    ("vgg16.1", 32, 3, 64, 224, 3, 1),
    ("vgg16.2", 32, 64, 64, 224, 3, 1),
    ("vgg16.4", 32, 128, 128, 112, 3, 1),
    ("vgg16.7", 32, 256, 256, 56, 3, 1),
    ("vgg16.10", 32, 512, 512, 28, 3, 1),
    ("vgg16.13", 32, 512, 512, 14, 3, 1),
    ("lenet.1", 256, 1, 6, 32, 5, 1),
    ("lenet.2", 256, 6, 16, 14, 5, 1),
    ("alexnet.2", 128, 64, 192, 27, 5, 1),
    ("small", 8, 64, 64, 32, 3, 1),
    ("wide", 64, 256, 256, 32, 3, 1),
    ("large", 16, 64, 64, 128, 3, 1),
)
PASSES = {"forward": None, "input_gradient": (True, False, False), "weight_gradient": (False, True, False)}
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


def taken(call) -> tuple[int, float]:
    """Bytes beside what it gives back, and its milliseconds, of the second call."""
    for _ in range(2):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        given = call()
        end.record()
        torch.cuda.synchronize()
        found = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        assert torch.cuda.memory_allocated() >= before
        del given
    return found, start.elapsed_time(end)


def call(word: str, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, more: tuple) -> torch.Tensor:
    """One pass of a convolution."""
    if word == "forward":
        return torch.ops.aten.convolution(x, w, None, *more)
    return torch.ops.aten.convolution_backward(y, x, w, None, *more, PASSES[word])


def main() -> None:
    for layer, precision in itertools.product(LAYERS, PRECISIONS):
        name, batch, channels, filters, image, kernel, stride = layer
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        made = {"device": "cuda", "dtype": PRECISIONS[precision]}
        x = torch.randn(batch, channels, image, image, **made)
        w = torch.randn(filters, channels, kernel, kernel, **made)
        more = ([stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], 1)
        y = call("forward", x, w, x, more)
        for word in PASSES:
            found, ms = taken(functools.partial(call, word, x, w, y, more))
            sizes = {"batch": batch, "in": channels, "out": filters, "image": image, "kernel": kernel, "stride": stride}
            tensors = {"x": x.nbytes, "w": w.nbytes, "y": y.nbytes}
            told = {"layer": name, **sizes, "pass": word, "precision": precision, "workspace": found, "ms": ms}
            print(json.dumps({**told, **tensors}), flush=True)


if __name__ == "__main__":
    main()
