# pyright: basic
"""Weights of a model that was built without memory: when a plan has cut it, this rank's shares get numbers.

So a rank of a model is rehearsed that is larger than the machine. The numbers are noise, which kernels do not mind.
"""

from __future__ import annotations

import torch

from foretell.runtime.subject import Subject

NOISE = 0.02
"""Standard deviation of weights, as most models begin with."""


def fill(subject: Subject) -> None:
    """Give memory and numbers to what a rank has."""
    subject.parts = [part.to_empty(device=subject.device) for part in subject.parts]
    with torch.no_grad():
        for part in subject.parts:
            for weight in part.parameters():
                weight.normal_(0.0, NOISE) if weight.dim() > 1 else weight.fill_(1.0)
            for buffer in part.buffers():
                buffer.fill_(1)
