"""What PyTorch keeps for the backward pass on a real GPU, next to what the graph says.

    python studies/saved_on_h200/measure.py > studies/saved_on_h200/measured.jsonl

One line a model, each number twice, ours first: parameters, flops by PyTorch's counter, bytes in saved
storages by its hooks, how much the allocator held after the forward pass more than before it, and the
kernels that the profiler saw in each pass (eager).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from torch.profiler import ProfilerActivity, profile

from agreement import measure_module, predicted
from foretell import modules
from foretell.modules.task import Example

CASES = [
    ("resnet50", 32),
    ("resnet50:dtype=bf16", 32),
    ("vgg16", 16),
    ("unet2d:image=256", 4),
    ("unet3d:image=64", 2),
    ("cosmoflow128", 2),
    ("gpt2:dtype=bf16", 8),
    ("gpt2", 4),
    ("gpt2:attention=math,seq=512", 2),
    ("llama3-8b:layers=4,seq=2048,dtype=bf16", 2),
    ("llama3.2-1b:seq=2048", 1),
    ("qwen3-0.6b:seq=2048,dtype=bf16", 2),
    ("mixtral-8x7b:layers=2,seq=2048,dtype=bf16", 1),
    ("deepseek:layers=4,seq=1024,dtype=bf16", 1),
    ("bert-base:seq=512,dtype=bf16", 8),
    ("bert-base:seq=512", 4),
    ("t5-small:seq=512", 4),
    ("t5-small:seq=512,attention=efficient", 4),
    ("bloom-560m:layers=4,seq=512,dtype=bf16", 2),
    ("opt-125m:seq=512,dtype=bf16", 2),
    ("vit-b-16", 16),
    ("vit-b-16:dtype=bf16", 16),
    ("swin-t", 8),
    ("lstm", 16),
    ("convnext-tiny", 8),
    ("efficientnet-b0", 16),
    ("mobilenet-v2", 16),
    ("densenet121", 8),
    ("inception-v3", 8),
    ("alexnet", 32),
    ("mlp", 64),
]


def measure(spec: str, batch: int) -> dict[str, object]:
    """One training step on the GPU."""
    with torch.device("cuda"):
        module = modules.build(spec)
        example = modules.example(spec, batch)
    ours = predicted(spec, batch)
    grown: list[int] = []

    def loss(outputs: torch.Tensor) -> torch.Tensor:
        value = example.loss(outputs, example.target)
        torch.cuda.synchronize()
        del outputs
        grown.append(torch.cuda.memory_allocated())
        return value

    before = torch.cuda.memory_allocated()
    theirs = measure_module(module, example.inputs, loss)
    module.zero_grad(set_to_none=True)
    kernels = _kernels(module, example)
    inputs = sum(tensor.numel() * tensor.element_size() for tensor in (*example.inputs, example.target))
    return {
        "spec": spec,
        "batch": batch,
        "parameters": [ours.parameters, theirs.parameters],
        "forward_flops": [ours.forward.matrix, theirs.forward_flops],
        "backward_flops": [ours.backward.matrix, theirs.backward_flops],
        "saved_bytes": [ours.saved_bytes, theirs.saved_bytes],
        "allocated_bytes": [ours.saved_bytes, grown[0] - before + inputs],
        "forward_kernels": [ours.forward.launches, kernels[0]],
        "backward_kernels": [ours.backward.launches, kernels[1]],
    }


def _kernels(module: torch.nn.Module, example: Example) -> tuple[int, int]:
    """Kernels, copies and fills on the device in the forward and in the backward pass."""
    with profile(activities=[ProfilerActivity.CUDA]) as forward:
        value = example.loss(module(*example.inputs), example.target)
        torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as backward:
        value.backward()
        torch.cuda.synchronize()
    return _on_device(forward), _on_device(backward)


def _on_device(profiled: profile) -> int:
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiled.events())


def main() -> None:
    device = torch.cuda.get_device_name()
    for spec, batch in CASES:
        about: dict[str, object] = {"device": device, "torch": torch.__version__}
        try:
            print(json.dumps({**about, **measure(spec, batch)}), flush=True)
        except Exception as problem:  # a row that fails is a row with a reason
            print(json.dumps({**about, "spec": spec, "batch": batch, "failed": repr(problem)[:300]}), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
