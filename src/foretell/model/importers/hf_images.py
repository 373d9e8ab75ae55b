"""The image models of Hugging Face: which family each type is, and where its fields are.

Defaults are those of transformers.
"""

from __future__ import annotations

from foretell.model.importers.hf_fields import (
    DEEPEST,
    TORCH,
    Config,
    HfModelType,
    Source,
    activation,
    classes,
    count,
    flag,
    number,
    sizes,
    square,
    usual_sizes,
    word,
)
from foretell.model.zoo.convnext import Convnext
from foretell.model.zoo.resnet import STAGES, Resnet
from foretell.model.zoo.swin import Swin
from foretell.model.zoo.vit import Vit

_GELU = {"hidden_act": (("gelu",), "the activation is counted as GELU")}
_THREE = {"num_channels": (3,)}


def _ratio(config: Config) -> int:
    """How many times wider the feed-forward is, as a whole number."""
    key = "mlp_ratio"
    ratio = number(key, default=4.0)(config)
    if ratio != int(ratio):
        raise config.bad(key, f"{key} is {ratio}, and the zoo's model widens by whole numbers", fix=f"4; {TORCH}")
    return config.whole(key, int(ratio))


def _doubling(key: str, default: tuple[int, ...]) -> Source:
    """The first of some sizes that double from stage to stage."""

    def read(config: Config) -> int:
        found: tuple[int, ...] = sizes(key, default=default)(config)
        doubled = tuple(found[0] << stage for stage in range(len(found)))
        if found != doubled:
            raise config.bad(key, f"{key} is {list(found)} and does not double", fix=f"{list(doubled)}; {TORCH}")
        return found[0]

    return read


def _bottleneck(config: Config) -> bool:
    return word("layer_type", default="bottleneck")(config) == "bottleneck"


def _resnet_widths(config: Config) -> None:
    """The zoo's ResNets have the published widths."""
    published = tuple(filters * (4 if _bottleneck(config) else 1) for filters in STAGES)
    found = sizes("hidden_sizes", default=(256, 512, 1024, 2048))(config)
    if found != published:
        what = f"hidden_sizes is {list(found)}, and the zoo's ResNets have {list(published)}"
        raise config.bad("hidden_sizes", what, fix=TORCH)


_KINDS = {
    "vit": HfModelType(
        Vit,
        {
            **usual_sizes(layers=12, hidden=768, heads=12, ffn=3072),
            "activation": activation("hidden_act", default="gelu"),
            "patch": square("patch_size", default=16),
            "image": square("image_size", default=224),
            "channels": count("num_channels", default=3),
            "classes": classes,
        },
        only={"qkv_bias": (True,)},
    ),
    "swin": HfModelType(
        Swin,
        {
            "layers": sizes("depths", default=(2, 2, 6, 2), most=DEEPEST),
            "heads": sizes("num_heads", default=(3, 6, 12, 24)),
            "hidden": count("embed_dim", default=96),
            "expansion": _ratio,
            "window": count("window_size", default=7),
            "patch": square("patch_size", default=4),
            "image": square("image_size", default=224),
            "channels": count("num_channels", default=3),
            "classes": classes,
        },
        only={"qkv_bias": (True,), "use_absolute_embeddings": (False,)},
        noted=_GELU,
        said=("hidden_size", "num_layers", "path_norm"),
    ),
    "convnext": HfModelType(
        Convnext,
        {
            "width": _doubling("hidden_sizes", (96, 192, 384, 768)),
            "blocks": sizes("depths", default=(3, 3, 9, 3), most=DEEPEST),
            "image": square("image_size", default=224),
            "classes": classes,
        },
        only={**_THREE, "patch_size": (4,), "num_stages": (4,)},
        noted=_GELU,
    ),
    "resnet": HfModelType(
        Resnet,
        {
            "blocks": sizes("depths", default=(3, 4, 6, 3), most=DEEPEST),
            "bottleneck": _bottleneck,
            "strided_1x1": flag("downsample_in_bottleneck", default=False),
            "classes": classes,
        },
        only={
            **_THREE,
            "embedding_size": (64,),
            "hidden_act": ("relu",),
            "layer_type": ("bottleneck", "basic"),
            "downsample_in_first_stage": (False,),
        },
        checks=(_resnet_widths,),
    ),
}
KINDS = {name: kind._replace(heads=("ForImageClassification",)) for name, kind in _KINDS.items()}
