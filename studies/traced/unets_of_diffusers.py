"""The U-Nets of latent diffusion against the class of diffusers: `python studies/traced/unets_of_diffusers.py`.

Needs diffusers (0.42.1 was used, with torch 2.13), which nothing else here does. Arguments are those of the published
`unet/config.json`, read in copies on GitHub (HDRJ-One/runwayml-stable-diffusion-v1-5 2e7465d,
Vikas-2025/Hugging_face_sta_dif_2.1 8d0c902; of sdxl as scripts print it); weights and inputs are shapes alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from foretell.model.source import load
from foretell.model.totals import totals

DOWN, UP = ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",), ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3
FIRST: dict[str, Any] = {
    "sample_size": 64,
    "block_out_channels": (320, 640, 1280, 1280),
    "cross_attention_dim": 768,
    "attention_head_dim": 8,
    "down_block_types": DOWN,
    "up_block_types": UP,
}
XL: dict[str, Any] = {
    "sample_size": 128,
    "block_out_channels": (320, 640, 1280),
    "cross_attention_dim": 2048,
    "attention_head_dim": (5, 10, 20),
    "use_linear_projection": True,
    "transformer_layers_per_block": (1, 2, 10),
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "down_block_types": ("DownBlock2D", *DOWN[:2]),
    "up_block_types": (*UP[1:3], "UpBlock2D"),
}
SECOND = {
    **FIRST,
    "sample_size": 96,
    "cross_attention_dim": 1024,
    "attention_head_dim": (5, 10, 20, 20),
    "use_linear_projection": True,
}
PUBLISHED = {"sd-1.5": FIRST, "sd-2.1": SECOND, "sdxl": XL}


def main() -> None:
    from diffusers import UNet2DConditionModel  # pyright: ignore[reportMissingImports]

    for name, sizes in PUBLISHED.items():
        with torch.device("meta"):
            theirs = UNet2DConditionModel(**sizes)
            side, text = sizes["sample_size"], torch.randn(1, 77, sizes["cross_attention_dim"])
            added = {"text_embeds": torch.randn(1, 1280), "time_ids": torch.randn(1, 6)} if name == "sdxl" else None
            with FlopCounterMode(display=False) as counted, torch.no_grad():
                theirs(torch.randn(1, 4, side, side), torch.tensor([5]), text, added_cond_kwargs=added)
        weights, ours = sum(weight.numel() for weight in theirs.parameters()), totals(load(name, 1))
        flops = counted.get_total_flops()
        print(f"{name}: {weights:,} parameters, ours {ours.parameters:,}")
        print(f"  {flops:,} flops forward, ours {ours.forward.matrix:,}")


if __name__ == "__main__":
    main()
