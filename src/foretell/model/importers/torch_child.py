# pyright: basic
"""The process in which a user's module is traced: whatever it does, the caller only gets a message.

    python -m foretell.model.importers.torch_child

reads a question on a line of JSON, and answers with the graph or with what went wrong.
"""

from __future__ import annotations

import msgspec

from foretell.errors import ForetellError
from foretell.model.importers import hf_classes
from foretell.model.importers.torch_load import TraceAnswer, TraceRequest
from foretell.processes import answer_lines, end_with_parent


def answer(spec: str, batch: int | None, seq: int | None) -> TraceAnswer:
    """Trace what the text names."""
    from foretell.model.importers import torch_factory, torch_trace

    try:
        factory, home = torch_factory.find(spec)
        built, mode = torch_factory.build(factory, home, batch, seq, spec)
        if spec.startswith(hf_classes.PREFIX):  # whose layers are known to depend on what they hold
            return TraceAnswer(torch_trace.trace_layers(mode, built, spec))
        return TraceAnswer(torch_trace.trace_in(mode, built.module, built.inputs, built.loss, spec))
    except ForetellError as problem:
        return TraceAnswer(None, type(problem).__name__, problem.what, problem.where or spec, problem.fix)


def answered(line: bytes) -> bytes:
    question = msgspec.json.decode(line, type=TraceRequest)
    return msgspec.json.encode(answer(question.spec, question.batch, question.seq))


if __name__ == "__main__":
    end_with_parent()
    answer_lines(answered)
