# pyright: basic
"""Running one training step with fake tensors and writing down what happens.

The forward pass is watched at the dispatcher, below autograd: module paths come from hooks on every
module, what autograd keeps from hooks on saved tensors. The backward pass is watched for the matrix
products that each forward operator causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.errors import TraceFailed
from foretell.model.importers.torch_backward import PRIM_DEVICE, device_of
from foretell.model.importers.torch_composites import Composites, caught
from foretell.model.importers.torch_operators import record
from foretell.model.importers.torch_paths import Paths
from foretell.model.importers.torch_tape import Tape

HINTS: dict[str, Any] = {"bool": False, "Scalar": 1, "number": 1, "int": 1, "float": 1.0}
"""What is answered when a program asks for a value that only real tensors have."""

IGNORED = ("aten.sym_", "aten.is_", "aten.size", "aten.stride", "aten.numel", "aten.dim", "aten._assert", "prim.")


class Recorder(TorchDispatchMode):
    """Writes every dispatched operator on the tape."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the guard costs time in every call

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is PRIM_DEVICE:  # asked more often than everything else together
            return device_of(args[0])
        if self._tape.paused:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except DataDependentOutputException:
            return self._hint(func, args)
        except DynamicOutputShapeException:
            raise self._data_dependent(func) from None
        name = str(func)
        if not name.startswith(IGNORED):
            record(self._tape, func, args, kwargs, result)
        return result

    def _hint(self, func: Any, args: tuple[Any, ...]) -> Any:
        """A value for a question about data: no, or one."""
        tensor = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        if func is torch.ops.aten._local_scalar_dense.default and tensor is not None:
            kind = "bool" if tensor.dtype is torch.bool else "float" if tensor.is_floating_point() else "int"
        else:
            kind = str(func._schema.returns[0].type) if func._schema.returns else ""
        if kind not in HINTS:
            raise self._data_dependent(func)
        self._tape.asked.setdefault(str(HINTS[kind]), []).append(self._tape.path or "the module")
        return HINTS[kind]

    def _data_dependent(self, func: Any) -> TraceFailed:
        where = self._tape.path or "the module's own forward"
        fix = "a form whose sizes follow from the sizes of its inputs (a mask instead of a selection)"
        return TraceFailed(f"{func} has a result whose size depends on the data", where=where, fix=fix)


@contextmanager
def forward_recorder(module: torch.nn.Module, tape: Tape) -> Iterator[None]:
    """Inside, everything that runs is written on the tape."""
    paths = Paths(module, tape)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not tape.paused:
            tape.keep(tensor)
        return tensor

    with ExitStack() as stack:
        for handle in (
            register_module_forward_pre_hook(paths.enter),
            register_module_forward_hook(paths.leave, always_call=True),
        ):
            stack.callback(handle.remove)
        stack.enter_context(caught(Composites(tape)))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor))
        stack.enter_context(Recorder(tape))
        yield
