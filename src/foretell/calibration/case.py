# pyright: basic
"""What a probe is made of: cases, each with what it is about and how to measure it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import msgspec
import torch

from foretell.calibration.clock import DeviceClock
from foretell.cost.samples import TYPES, About, Kernel, PartName, Precision
from foretell.model.operator import Operator

T = TypeVar("T")

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Case(NamedTuple):
    """One thing to measure."""

    about: About
    measure: Callable[[DeviceClock], Sequence[float]]
    make: Callable[[], Callable[[], Any]] | None = None  # of a kernel: prepares tensors and gives the call


class Scope(NamedTuple):
    """What is measured: a device, and how thoroughly."""

    device: str  # cpu or cuda
    quick: bool
    count: int  # devices or cores of this machine
    passes: int = 1  # in which every case is timed
    turn: int = 0  # the pass that goes on now

    def choose(self, few: Sequence[T], cpu: Sequence[T], cuda: Sequence[T]) -> Sequence[T]:
        """The cases for a quick look, for a core, and for an accelerator, which has a hundred times its work."""
        return few if self.quick else cuda if self.device == "cuda" else cpu

    @property
    def precisions(self) -> tuple[str, ...]:
        """What products are timed in."""
        if self.quick:
            return ("fp32",) if self.device == "cpu" else ("fp32", "bf16")
        return ("fp32", "bf16") if self.device == "cpu" else ("bf16", "tf32", "fp32")

    @property
    def widths(self) -> tuple[str, ...]:
        """What kernels bound by memory are timed in."""
        return ("fp32",) if self.quick else ("fp32", "bf16")

    def random(self, *shape: int, precision: str = "fp32", trained: bool = False) -> torch.Tensor:
        """Numbers on the device."""
        made = torch.randn(shape, device=self.device, dtype=DTYPES[precision])
        return made.requires_grad_(trained)

    def whole(self, most: int, *shape: int) -> torch.Tensor:
        """Whole numbers below some number."""
        return torch.randint(most, shape, device=self.device)


class Probe(Protocol):
    """A file in `probes/`."""

    SUMMARY: str

    def cases(self, scope: Scope) -> Iterator[Case]:
        """What it measures, the cases that matter most first."""
        ...


def timed(about: About, make: Callable[[], Callable[[], Any]]) -> Case:
    """A case whose calls are timed by the device's clock; `make` prepares tensors and gives the call."""
    return Case(about, lambda clock: clock.times(make()), make)


def kernel(
    operator: Operator,
    sizes: Mapping[str, int],
    operands: str,
    parts: Sequence[str],
    precision: str,
    make: Callable[[], Callable[[], Any]],
    *,
    widths: Mapping[str, int] | None = None,
    layout: str = "first",
    density: float = 1.0,
    direct: bool = False,
) -> Case:
    """A case of one operator. `operands` are its letters, with the precision's bytes unless `widths` says others.

    Gradients are asked of autograd, unless `direct` says that their operator is called itself.
    """
    words = operands.split()
    about = Kernel(
        operator=msgspec.to_builtins(operator),
        sizes=dict(sizes),
        widths={**dict.fromkeys(words, TYPES[precision]), **(widths or {})},
        parts=tuple(cast("PartName", part) for part in parts),
        precision=cast("Precision", precision),
        layout=layout,
        density=density,
        autograd=tuple(parts) != ("forward",) and not direct,
    )

    def prepared() -> Callable[[], Any]:
        allow_tf32(precision == "tf32")
        return make()

    return timed(about, prepared)


def allow_tf32(allowed: bool) -> None:
    """Whether products of fp32 run in TF32."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def gradients(output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Callable[[], Any]:
    """A call of the backward pass alone."""
    upstream = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, list(inputs), upstream, retain_graph=True)
