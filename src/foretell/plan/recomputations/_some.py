"""Some layers of a stage run again, the others keep all: plans say how many, or which of them, by a number."""

from __future__ import annotations

from foretell.plan.recomputations.block import WholeLayers


class FirstLayers(WholeLayers, frozen=True):
    """Megatron's `--recompute-method block`: of each stage, a virtual one too, the first `count` layers."""

    summary = "the input of each of the first layers of a stage is saved; the others save all"
    references = ("Megatron-Core, megatron/core/transformer/transformer_block.py: _checkpointed_forward",)
    place = 45
    spares_layers = True

    count: int = 1

    def spares(self, layer: int) -> bool:
        return layer >= self.count


class NthLayers(WholeLayers, frozen=True):
    """torchtitan's selective checkpointing by a number n: the n-th layer of a stage, the 2n-th, and so on."""

    summary = "the input of every n-th layer of a stage is saved; the others save all"
    references = ("torchtitan 0.2.2, torchtitan/distributed/activation_checkpoint.py: _apply_layer_sac",)
    place = 45
    spares_layers = True

    step: int = 2

    def spares(self, layer: int) -> bool:
        return (layer + 1) % self.step > 0
