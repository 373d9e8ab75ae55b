# pyright: basic
"""Classes of transformers, built from a configuration that is data: with tokens and labels to trace them with."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch

from foretell.errors import BadInput
from foretell.model.importers import hf_classes, hf_config, torch_scans
from foretell.model.importers.hf_fields import TORCH, shown

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def factory(spec: str) -> tuple[Callable[[int, int], Any], ModuleType]:
    """A factory of the model whose configuration lies at a path, and the package that its class is of."""
    package = importlib.import_module("transformers")
    dtype, _, file = spec.removeprefix(hf_classes.PREFIX).partition(":")
    content = hf_classes.cleaned(hf_config.content(Path(file)))

    def build(batch: int, seq: int) -> Any:
        with _apart():
            config, model = _class(content, file)
            config.use_cache = False
            module = model._from_config(config, dtype=TYPES[dtype]).train()
        _run_apart(module, torch_scans.replacements(importlib.import_module(type(module).__module__)))
        tokens = torch.zeros(batch, seq, dtype=torch.int64)
        inputs = {"input_ids": tokens, "labels": tokens.clone()}
        return module, inputs, _loss

    return build, package


def _loss(output: Any) -> torch.Tensor:
    return output.loss


Replaced: TypeAlias = Sequence[tuple[ModuleType, str, Any]]


@contextlib.contextmanager
def _apart(scans: Replaced = ()) -> Iterator[None]:
    """While a model is built or run: nothing is fetched, weights or kernels, and no sample is several sequences.

    Whether a sample is several sequences a trace cannot see: transformers finds out by the values of the positions,
    which a trace does not have, and would make a mask that keeps the sequences apart. Scans are the kernels that people
    train with. Afterwards everything is as it was.
    """
    masking = importlib.import_module("transformers.masking_utils")
    constants = importlib.import_module("huggingface_hub.constants")
    with contextlib.ExitStack() as restored:
        for owner, name, value in (
            (masking, "find_packed_sequence_indices", lambda position_ids: None),
            (constants, "HF_HUB_OFFLINE", True),
            *scans,
        ):
            restored.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _run_apart(module: torch.nn.Module, scans: Replaced) -> None:
    """Each forward pass of a module is run so, and what is outside of it is not touched."""
    running = contextlib.ExitStack()

    def enter(module: torch.nn.Module, arguments: Any) -> None:
        running.enter_context(_apart(scans))

    def leave(module: torch.nn.Module, arguments: Any, output: Any) -> None:
        running.close()

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave, always_call=True)


def _class(content: dict[str, Any], file: str) -> tuple[Any, Any]:
    """The configuration and the class that predicts tokens; of several towers, that of the text where it has one."""
    import transformers

    for part in (content, content.get("text_config")):
        config = _config(part, file) if isinstance(part, dict) else None
        if config is None:
            continue
        heads = (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_MASKED_LM_MAPPING)
        for known in heads:
            if type(config) in known and not hasattr(config, "text_config"):
                return config, known[type(config)]
    config = _config(content, file)
    towers = transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if config is not None and type(config) in towers:
        return config, towers[type(config)]
    what = f"transformers has no class for the next token of model type {shown(content.get('model_type'))}"
    close = hf_config.meant(str(content.get("model_type")))
    hint = f"did you mean {', '.join(close)}? Or " if close else ""
    raise BadInput(what, where=file, fix=f"{hint}a newer transformers; or {TORCH}")


def _config(part: dict[str, Any], file: str) -> Any:
    """The configuration of a type that is installed; None: there is none.

    Files whose type is their author's own say which class of transformers they are, if it is one (Kimi K2 is
    DeepSeek-V3's): that class is taken.
    """
    import transformers

    kind = part.get("model_type")
    known = transformers.CONFIG_MAPPING
    if not isinstance(kind, str) or kind not in known:
        names = part.get("architectures")
        name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
        alike = [one for one, head in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
                 if head == name and one in known]  # fmt: skip
        if not alike:
            return None
        kind = alike[0]
    try:
        return known[kind].from_dict({**part, "model_type": kind})
    except Exception as problem:
        what = f"transformers refuses this configuration: {' '.join(str(problem).split())[:300]}"
        raise BadInput(what, where=file, fix="the file as it lies beside the weights") from None
