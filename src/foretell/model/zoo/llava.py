"""LLaVA: what CLIP's tower sees of an image, mapped to the features of tokens, ahead of the text of a Llama.

The tower's last layer but one is read, and the token of the whole image left out, as the released code has it. The last
layer and the last norm are held all the same: transformers runs them and throws away what they make, and here they are
run in the forward pass alone. In the published training the tower is frozen; `frozen=false` trains it.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Index
from foretell.model.operators.elementwise import activation
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.zoo._encoder import head_size
from foretell.model.zoo._tower import Tower, look, tower_layer
from foretell.model.zoo.llama import Llama


class Llava(Llama, frozen=True, kw_only=True):
    """Fields with `vision_` are those of the tower; `seq` counts an image's places and those of the text."""

    references: ClassVar[tuple[str, ...]] = (
        "Liu et al. 2023 (LLaVA), arXiv 2304.08485",
        "Liu et al. 2023 (LLaVA-1.5), arXiv 2310.03744",
    )

    layers: Count = 32
    hidden: Count = 4096
    heads: Count = 32
    ffn: Index = 11008
    vocab: Count = 32064
    seq: Count = 2048
    vision_layers: Count = 24
    vision_hidden: Count = 1024
    vision_heads: Count = 16
    vision_ffn: Count = 4096
    patch: Count = 14
    image: Count = 336
    frozen: bool = True

    def check(self) -> None:
        super().check()
        head_size(self.vision_hidden, self.vision_heads)
        self.tower.check()
        if self.vision_layers < 2:
            raise BadInput("the last layer of the tower but one is read", fix="vision_layers=2 or more")
        if self.seq <= self.tower.patches:
            what = f"seq={self.seq} has no places beside the {self.tower.patches} of an image"
            raise BadInput(what, fix=f"seq={2 * self.tower.patches}")

    @property
    def tower(self) -> Tower:
        """What looks at images."""
        kernel = "flash" if self.attention == "local" else self.attention
        return Tower(
            self.vision_layers, self.vision_hidden, self.vision_heads, self.vision_ffn, self.patch, self.image,
            "quick_gelu", kernel,
        )  # fmt: skip

    @property
    def text(self) -> int:
        return self.seq - self.tower.patches

    def entering(self, g: Builder, x: Value) -> Value:
        was, g.frozen = g.frozen, self.frozen or g.frozen
        with g.scope("vision"):
            seen = look(g, g.batch, self.tower, self.vision_layers - 1)
            g.frozen = True
            last = tower_layer(g, seen._replace(needs_gradient=False), self.tower, self.vision_layers - 1)
            with g.scope("norm"):
                layer_norm(g, view(g, last, (last.dims[0], last.dims[2]), "slice"))
        g.frozen = was
        sample, _, hidden = seen.dims
        seen = view(g, seen, (sample, *dims(sequence=self.tower.patches), hidden), "slice")
        with g.scope("projector.up"):
            seen = linear(g, seen, dims(hidden=self.hidden))
        seen = activation(g, seen, "gelu")
        with g.scope("projector.down"):
            seen = linear(g, seen, dims(hidden=self.hidden))
        return concatenate(g, [seen, x], "sequence")


PRESETS = {
    "llava": Llava(),
    "llava-1.5-7b": Llava(),
    "llava-1.5-13b": Llava(layers=40, hidden=5120, heads=40, ffn=13824),
}
