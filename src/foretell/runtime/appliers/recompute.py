# pyright: basic
"""Recompute: attention, modules, layers, or whole stages run again in the backward pass (`torch.utils.checkpoint`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.layers import by_layers, layers, pieces
from foretell.model.zoo.deepseek import DeepSeek
from foretell.model.zoo.gpt import Gpt
from foretell.model.zoo.llama import Llama
from foretell.model.zoo.mixture import Mixture
from foretell.modules._decoder import Kernel, attended
from foretell.plan.policies.recompute import Recompute
from foretell.plan.recomputation import Recomputation
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.program.recomputed import recomputed
from foretell.runtime.appliers._attention import ByHeads, RingAttention
from foretell.runtime.subject import Subject

ORDER = 30

ModulePath: TypeAlias = tuple[str, ...]
"""The names of a module within its layer, the outermost first."""


def refusals(part: Recompute, setting: Setting) -> Iterator[tuple[str, str]]:
    name, data = setting.graph.name, setting.plan.axis(Data)
    if recomputed(setting.graph, part.rule).inside:
        fields = zoo.parse(name)[1] if name.partition(":")[0] in zoo.names() else None
        if not isinstance(fields, Llama | Gpt | Mixture | DeepSeek):
            why = "+recompute:attention runs in llama, mixture, deepseek and gpt modules today"
            yield why, "+recompute:block or +recompute:full"
    if not part.rule.together(1) and not part.rule.at_once and _modules(setting.graph, part.rule) is None:
        yield f"+recompute:{part.option}: whole modules run again today, and no others", "+recompute:block"
    if part.every and data is not None and data.storage in ("zero2", "zero3"):
        why = f"+recompute:every{part.every} beside {data.storage} does not run: FSDP2 gathers the weights of one layer"
        yield why, "+recompute:block or +recompute:full"
    stacks = {name.rpartition(".")[0] for name in layers(setting.graph)}
    if (part.every or 1) > 1 and len(stacks) > 1:
        why = (
            f"+recompute:every{part.every} of layers that read other inputs ({', '.join(sorted(stacks))}) does not run"
        )
        yield why, "+recompute:block or +recompute:full"


def apply(part: Recompute, subject: Subject) -> None:
    graph = subject.setting.graph
    inside, modules = recomputed(graph, part.rule).inside, _modules(graph, part.rule) or {}
    for own in subject.parts:
        here = dict(subject.layers(own))
        if inside:
            _attention(own)
        if part.granularity == "full":
            _again([own])
        elif part.rule.together(1):
            chosen = [layer for at, layer in enumerate(here.values()) if not part.rule.spares(at)]
            for together in _in_rows(chosen, part.every or 1):
                _again(together)
        elif part.rule.at_once:
            for layer in here.values():
                _by_operator(layer)
        else:
            for module in (layer.get_submodule(path) for name, layer in here.items() for path in modules[name]):
                _again([module])


def _modules(graph: Graph, rule: Recomputation) -> dict[str, list[str]] | None:
    """By layer, the outermost modules that run again as wholes; None where single operators do.

    A checkpoint drops what its module made inside. Its output is there as long as others need it: a rule that drops
    that too is none of whole modules.
    """
    cut = by_layers(graph)
    marks, found = recomputed(cut, rule), dict[str, list[str]]()
    for at, _, start, stop, layer in pieces(cut):
        block, outside = cut.blocks[at], len(layer.split("."))
        paths = [tuple(node.path.split(".")[outside:]) for node in block.nodes]
        again = {index for place, index in marks.again if place == at}
        wholes = _wholes(paths, again)
        single = any(not _inside(paths[index], wholes) for index in again)
        if single or any(before not in row for before, row in marks.reruns(at, block, start, stop).items()):
            return None
        found[layer] = [".".join(path) for path in wholes]
    return found


def _wholes(paths: list[ModulePath], again: set[int]) -> list[ModulePath]:
    """The outermost modules all of whose operators run again."""
    found: list[ModulePath] = []
    outer = {paths[index][:depth] for index in again for depth in range(1, len(paths[index]) + 1)}
    for path in sorted(outer, key=lambda path: (len(path), path)):
        whole = all(index in again for index, own in enumerate(paths) if _inside(own, [path]))
        found += [path] if whole and not _inside(path, found) else []
    return found


def _inside(path: ModulePath, modules: list[ModulePath]) -> bool:
    return any(path[: len(module)] == module for module in modules)


SAVED = ("addmm", "bmm", "scaled_dot_product")
"""Of torch's operators those whose outputs stay in a layer that saves by operator; of `mm` every other does."""


def _by_operator(layer: nn.Module) -> None:
    """A layer runs again but for some operators, as torchtitan's SelectiveAC has it."""
    routers = (module for name, module in layer.named_modules() if name.endswith("router"))
    apart = {tuple(weight.shape[::-1]) for router in routers for weight in router.parameters() if weight.ndim == 2}
    layer.forward = functools.partial(
        checkpoint, layer.forward, use_reentrant=False, context_fn=functools.partial(_savings, apart)
    )


def _savings(apart: set[tuple[int, ...]]) -> Any:
    counts = {False: 0, True: 0}

    def policy(context: Any, function: Any, *inputs: Any, **_: Any) -> CheckpointPolicy:
        name = function.__name__.removeprefix("_").partition(".")[0]
        saved = name.startswith(SAVED)
        if name == "mm" and tuple(inputs[1].shape) not in apart:
            counts[context.is_recompute] += 1
            saved = counts[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _in_rows(layers: list[nn.Module], count: int) -> Iterator[list[nn.Module]]:
    for at in range(0, len(layers), count):
        yield layers[at : at + count]


def _again(together: list[nn.Module]) -> None:
    """Modules that follow each other, whose first input alone is kept: the first of them runs all."""
    forwards = [module.forward for module in together]
    together[0].forward = functools.partial(checkpoint, functools.partial(_through, forwards), use_reentrant=False)
    for module in together[1:]:
        module.forward = _passed


def _through(forwards: list[Callable[..., Any]], *inputs: Any, **more: Any) -> Any:
    """What one makes is the first input of the next; the others they share."""
    x = forwards[0](*inputs, **more)
    for forward in forwards[1:]:
        x = forward(x, *inputs[1:], **more)
    return x


def _passed(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _attention(own: nn.Module) -> None:
    """Keep queries, keys and values alone. A ring keeps no more anyway."""
    modules: list[Any] = list(own.modules())
    for module in modules:
        kernel = getattr(module, "kernel", None)
        if isinstance(kernel, ByHeads):
            module.kernel = kernel._replace(inside=functools.partial(_recomputed, kernel.inside))
        elif isinstance(kernel, str):
            module.kernel = functools.partial(_recomputed, functools.partial(attended, kernel))
        else:
            assert kernel is None or isinstance(kernel, RingAttention)


def _recomputed(kernel: Kernel, *inputs: Any) -> Any:
    return checkpoint(kernel, *inputs, use_reentrant=False)
