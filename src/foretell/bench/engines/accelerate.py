# pyright: basic
"""Hugging Face Accelerate: it prepares a module and an optimizer for the ranks that it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretell.bench.engine import Engine

if TYPE_CHECKING:
    from foretell.runtime.subject import Subject

ENGINE = Engine(title="Hugging Face Accelerate", plan="dp{n}", package="accelerate")


def apply(subject: Subject) -> None:
    from accelerate import Accelerator  # pyright: ignore[reportMissingImports]

    from foretell.bench.wrapping import as_by_torchrun, in_buckets, optimizer_of, wrap

    as_by_torchrun()
    accelerator: Any = Accelerator(cpu=subject.device.type == "cpu")
    module, optimizer = accelerator.prepare(subject.parts[0], optimizer_of(subject))
    wrap(subject, module, optimizer, accelerator.backward, "module.")
    in_buckets(subject)
