"""Recurrent layers as a loop over time, and as one call of a library: what the host starts, what the device runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foretell.cost.kernels import KernelPrice, kernel_seconds
from foretell.hardware import catalog
from foretell.model import zoo
from foretell.model.fold import unfold
from foretell.model.graph import Graph, Node
from foretell.model.importers.torch_trace import trace
from foretell.plan.policies.precision import FORMATS
from foretell.plan.trainer import trainer
from foretell.program.action import Compute


def nodes(graph: Graph, kind: str) -> list[Node]:
    return [node for node in unfold(graph.blocks).nodes if node.kind == kind]


class Long(nn.Module):
    """A recurrent layer of torch.nn, which its library runs in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(128, 128, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0].mean()


@pytest.mark.parametrize("steps", [32, 64])
def test_the_host_starts_one_call_a_recurrent_layer_however_long(steps: int) -> None:
    """A loop over time starts 11 kernels a step of an LSTM; cuDNN runs a product and the gates, one after the other."""
    device, loop = catalog.cluster("1xh200").device, zoo.load(f"lstm:hidden=128,seq={steps}", batch=4)
    found: dict[str, KernelPrice] = {}
    for kind, graph in (("recurrent", loop), ("recurrent_call", trace(Long(), torch.randn(4, steps, 128)))):
        node = nodes(graph, kind)[0]
        sizes, widths = node.sizes(), dict.fromkeys((*node.operator.spans, "y"), 4)
        cost = node.operator.forward(sizes, widths)
        action = Compute("layers", kind, "forward", sizes, cost)
        found[kind] = kernel_seconds(action, device, FORMATS["tf32"], trainer("pytorch"))
    assert found["recurrent"].launches == 3 + 11 * steps and found["recurrent_call"].launches == 1
    assert found["recurrent_call"].launch == pytest.approx(device.launch_seconds * (1 + 2 * steps))
    assert found["recurrent_call"].matrix == pytest.approx(found["recurrent"].matrix)
