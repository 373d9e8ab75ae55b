"""A transformer of seventy billion parameters, for timing the tracer."""

from typing import Any

from foretell import modules

SPEC = "llama3-70b:seq=4096,dtype=bf16"


def build() -> Any:
    """The module, one sequence of 4,096 tokens, and the loss."""
    example = modules.example(SPEC, batch=1)
    return modules.build(SPEC), example.inputs, lambda outputs: example.loss(outputs, example.target)
