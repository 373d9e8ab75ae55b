# pyright: basic
"""Megatron-core's column- and row-parallel layers, in the place of the dense layers of a GPT.

Megatron splits the vocabulary too; here the token table and the head stay whole on every rank, so that losses are those
of our own function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretell.bench.engine import Engine

if TYPE_CHECKING:
    import torch

    from foretell.runtime.subject import Subject

ENGINE = Engine(
    title="Megatron-core tensor parallel",
    plan="tp{n}",
    package="megatron-core",
    whole_weights=False,
    settings={"split": "attention and feed-forward; the vocabulary is whole"},
)


def apply(subject: Subject) -> None:
    import torch
    import torch.distributed as dist
    from megatron.core import ModelParallelConfig, parallel_state  # pyright: ignore[reportMissingImports]

    from foretell.errors import BadInput
    from foretell.modules.gpt import FusedAttention, GptFeedForward

    ranks = dist.get_world_size()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    config = ModelParallelConfig(
        tensor_model_parallel_size=ranks,
        use_cpu_initialization=subject.device.type == "cpu",
        perform_initialization=False,
    )
    cut = _MegatronCut(config, dist.get_rank(), ranks)
    for name, module in list(subject.parts[0].named_modules()):
        if isinstance(module, FusedAttention):
            sizes = [count * module.head_dim for count in module.heads]  # queries, keys and values: some heads of each
            rows = torch.arange(sum(sizes)).split(sizes)
            order = torch.cat([some.chunk(ranks)[at] for at in range(ranks) for some in rows])
            cut.columns(name, module, "qkv", order)
            cut.rows(name, module, "output")
            query, key, value = module.heads
            module.heads = (query // ranks, key // ranks, value // ranks)
        elif isinstance(module, GptFeedForward):
            cut.columns(name, module, "up", torch.arange(module.up.out_features))
            cut.rows(name, module, "down")
    if not cut.shares:
        what = "Megatron's split does not fit: the model has no layers of a GPT"
        raise BadInput(what, fix="--pair language or gpt2-medium")
    subject.parts[0].to(subject.device)
    subject.averaged = True  # every rank sees all samples
    subject.wholes.append(cut.whole)


class _MegatronCut:
    """Puts Megatron's layers in the place of torch's, with this rank's shares of their weights."""

    def __init__(self, config: Any, rank: int, ranks: int) -> None:
        self._config, self._rank, self._ranks = config, rank, ranks
        self.shares: dict[str, tuple[str, int, torch.Tensor | None]] = {}  # the plain name, the dim, the rows' order

    def columns(self, name: str, module: Any, part: str, order: torch.Tensor) -> None:
        from megatron.core.tensor_parallel import ColumnParallelLinear  # pyright: ignore[reportMissingImports]

        old = module.get_submodule(part)
        new: Any = ColumnParallelLinear(
            old.in_features, old.out_features, bias=old.bias is not None, gather_output=False, **self._made()
        )
        for weight, whole in list(old.named_parameters()):
            self._fill(new, weight, whole.detach()[order].chunk(self._ranks)[self._rank])
            self.shares[f"{name}.{part}.inner.{weight}"] = (f"{name}.{part}.{weight}", 0, order)
        setattr(module, part, _first(new))

    def rows(self, name: str, module: Any, part: str) -> None:
        from megatron.core.tensor_parallel import RowParallelLinear  # pyright: ignore[reportMissingImports]

        old = module.get_submodule(part)
        new: Any = RowParallelLinear(
            old.in_features,
            old.out_features,
            bias=old.bias is not None,
            input_is_parallel=True,
            skip_bias_add=False,
            **self._made(),
        )
        for weight, whole in list(old.named_parameters()):
            split = weight == "weight"
            share = whole.detach().chunk(self._ranks, 1)[self._rank] if split else whole.detach()
            self._fill(new, weight, share)
            self.shares[f"{name}.{part}.inner.{weight}"] = (f"{name}.{part}.{weight}", 1 if split else -1, None)
        setattr(module, part, _first(new))

    def _made(self) -> dict[str, Any]:
        return {"config": self._config, "init_method": lambda weight: None}

    def _fill(self, layer: Any, weight: str, share: torch.Tensor) -> None:
        layer.get_parameter(weight).data.copy_(share)

    def whole(self, name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        import torch
        import torch.distributed as dist

        if name not in self.shares:
            return name, share
        plain, dim, order = self.shares[name]
        if dim < 0:
            return plain, share
        parts = [torch.empty_like(share) for _ in range(self._ranks)]
        dist.all_gather(parts, share.contiguous())
        found = torch.cat(parts, dim)
        return plain, found if order is None else found[torch.argsort(order)]


def _first(layer: Any) -> Any:
    """Megatron's layers give their bias besides, for those who add it later."""
    from torch import nn

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)[0]

    return First()
