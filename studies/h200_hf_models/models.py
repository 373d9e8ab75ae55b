# pyright: basic
"""Hugging Face's models as their users build them: a configuration, a class, inputs; each name is a factory.

    foretell predict studies/h200_hf_models/models.py:olmo2 --on 1xh200 --plan 'dp1 +bf16:pure' --batch 8 --seq 1024

Configurations are those of the named checkpoints, with fewer layers where the line says so; weights are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

SEED = 25
TINY = {
    "num_hidden_layers": 2, "n_layer": 2, "encoder_layers": 2, "decoder_layers": 2, "hidden_size": 64,
    "embedding_size": 64, "d_model": 64, "intermediate_size": 128, "ffn_dim": 128,
    "num_attention_heads": 4, "n_head": 4, "num_key_value_heads": 2, "head_dim": 16, "word_embed_proj_dim": 64,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "pooler_hidden_size": 64,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
}  # fmt: skip


class Case(NamedTuple):
    """One model, and how it is trained."""

    name: str
    type: str  # transformers' model_type
    classes: str  # its class with a loss
    group: str
    precision: str  # amp: fp32 weights under autocast; bf16: all in it
    attention: str
    batch: int
    length: int  # tokens, samples of sound or pixels a side
    checkpointing: bool = False
    fields: Mapping[str, Any] = MappingProxyType({})

    @property
    def plan(self) -> str:
        precision = "+amp_bf16" if self.precision == "amp" else "+bf16:pure"
        return f"dp1 {precision}" + (" +recompute:block" if self.checkpointing else "")


def _text(name: str, kind: str, precision: str, attention: str, batch: int, length: int, **more: Any) -> Case:
    again = more.pop("checkpointing", False)
    return Case(name, kind, "AutoModelForCausalLM", "language", precision, attention, batch, length, again, more)


def _encoder(name: str, kind: str, precision: str, attention: str, batch: int, length: int, **more: Any) -> Case:
    auto = more.pop("auto", "AutoModelForMaskedLM")
    return Case(name, kind, auto, "language", precision, attention, batch, length, False, more)


def _image(name: str, kind: str, precision: str, batch: int, side: int = 224, **more: Any) -> Case:
    attention, again = more.pop("attention", "sdpa"), more.pop("checkpointing", False)
    auto = more.pop("auto", "AutoModelForImageClassification")
    return Case(name, kind, auto, "vision", precision, attention, batch, side, again, more)


def _sound(name: str, kind: str, auto: str, precision: str, attention: str, batch: int, length: int) -> Case:
    return Case(name, kind, auto, "audio", precision, attention, batch, length)


CASES = (
    _text("gemma3_1b", "gemma3_text", "amp", "sdpa", 4, 1024, hidden_size=1152, intermediate_size=6912,
          num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1, head_dim=256, vocab_size=262144),
    _text("qwen3_1_7b", "qwen3", "bf16", "sdpa", 8, 2048, checkpointing=True, hidden_size=2048,
          intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
          vocab_size=151936, tie_word_embeddings=True),
    _text("phi3_mini", "phi3", "bf16", "sdpa", 4, 2048, hidden_size=3072, intermediate_size=8192,
          num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=32, vocab_size=32064),
    _text("pythia_1b", "gpt_neox", "amp", "eager", 8, 1024, hidden_size=2048, intermediate_size=8192,
          num_hidden_layers=16, num_attention_heads=8, vocab_size=50304),
    _text("opt_1_3b", "opt", "amp", "sdpa", 8, 1024, checkpointing=True, hidden_size=2048, ffn_dim=8192,
          num_hidden_layers=24, num_attention_heads=32, vocab_size=50272, word_embed_proj_dim=2048),
    _text("olmo2", "olmo2", "bf16", "sdpa", 8, 1024, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
          num_attention_heads=16, num_key_value_heads=16, vocab_size=100352),
    _text("stablelm_1_6b", "stablelm", "bf16", "eager", 4, 1024, hidden_size=2048, intermediate_size=5632,
          num_hidden_layers=24, num_attention_heads=32, num_key_value_heads=32, vocab_size=100352),
    _text("bloom_1b", "bloom", "amp", "eager", 4, 1024, hidden_size=1536, n_layer=24, n_head=16, vocab_size=250880),
    _text("granite_2b", "granite", "bf16", "sdpa", 8, 1024, checkpointing=True, hidden_size=2048,
          intermediate_size=8192, num_hidden_layers=20, num_attention_heads=32, num_key_value_heads=8,
          vocab_size=49155),
    _encoder("modernbert", "modernbert", "amp", "sdpa", 32, 512),
    _encoder("electra", "electra", "amp", "sdpa", 64, 128, auto="AutoModelForSequenceClassification",
             hidden_size=768, intermediate_size=3072, num_attention_heads=12, embedding_size=768),
    _encoder("deberta_v3", "deberta-v2", "amp", "eager", 16, 256, auto="AutoModelForSequenceClassification",
             hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, vocab_size=128100,
             relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True,
             pos_att_type=["p2c", "c2p"], position_biased_input=False, max_relative_positions=-1),
    _encoder("distilbert", "distilbert", "amp", "sdpa", 64, 256),
    _encoder("albert_large", "albert", "bf16", "sdpa", 32, 256, hidden_size=1024, intermediate_size=4096,
             num_hidden_layers=24, num_attention_heads=16),
    _encoder("bart_base", "bart", "amp", "sdpa", 32, 256, auto="AutoModelForSeq2SeqLM", d_model=768,
             encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
             encoder_attention_heads=12, decoder_attention_heads=12, vocab_size=50265),
    _encoder("pegasus", "pegasus", "bf16", "eager", 16, 256, auto="AutoModelForSeq2SeqLM", d_model=1024,
             encoder_layers=8, decoder_layers=8, vocab_size=96103),
    _image("dinov2_base", "dinov2", "amp", 64),
    _image("beit_base", "beit", "bf16", 64),
    _image("swinv2_tiny", "swinv2", "amp", 64, 256, attention="eager"),
    _image("convnextv2_base", "convnextv2", "amp", 64, attention="eager", depths=[3, 3, 27, 3],
           hidden_sizes=[128, 256, 512, 1024]),
    _image("regnet_y_4gf", "regnet", "amp", 64, attention="eager", hidden_sizes=[128, 192, 512, 1088],
           depths=[2, 6, 12, 2], groups_width=64),
    _image("segformer_b2", "segformer", "amp", 8, 512, auto="AutoModelForSemanticSegmentation", attention="eager",
           depths=[3, 4, 6, 3], hidden_sizes=[64, 128, 320, 512], num_labels=150, decoder_hidden_size=768),
    _image("deit_base", "deit", "bf16", 128, checkpointing=True, architectures=["DeiTForImageClassification"]),
    _image("clip_b32", "clip", "amp", 256, auto="AutoModel"),
    _sound("wav2vec2_base", "wav2vec2", "AutoModelForCTC", "amp", "sdpa", 8, 160000),
    _sound("hubert_base", "hubert", "AutoModelForCTC", "bf16", "eager", 8, 160000),
    _sound("ast", "audio-spectrogram-transformer", "AutoModelForAudioClassification", "amp", "sdpa", 16, 1024),
    _sound("whisper_small", "whisper", "AutoModelForSpeechSeq2Seq", "amp", "sdpa", 8, 3000),
    Case("granitemoe_1b", "granitemoe", "AutoModelForCausalLM", "experts", "bf16", "sdpa", 4, 1024, False,
         {"hidden_size": 1024, "intermediate_size": 512, "num_hidden_layers": 24, "num_attention_heads": 16,
          "num_key_value_heads": 8, "num_local_experts": 32, "num_experts_per_tok": 8, "vocab_size": 49155}),
    Case("qwen2_moe", "qwen2_moe", "AutoModelForCausalLM", "experts", "bf16", "sdpa", 4, 2048, True,
         {"hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408, "num_hidden_layers": 8,
          "shared_expert_intermediate_size": 5632, "num_attention_heads": 16, "num_key_value_heads": 16,
          "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936}),
    Case("mamba2_130m", "mamba2", "AutoModelForCausalLM", "state space", "bf16", "eager", 4, 1024, False,
         {"hidden_size": 768, "num_hidden_layers": 24, "num_heads": 24, "head_dim": 64, "n_groups": 1,
          "vocab_size": 50288}),
    Case("mamba_130m", "mamba", "AutoModelForCausalLM", "state space", "amp", "eager", 8, 128, False,
         {"hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 50280}),
    Case("lfm2_350m", "lfm2", "AutoModelForCausalLM", "state space", "bf16", "sdpa", 8, 1024, False,
         {"hidden_size": 1024, "intermediate_size": 6656, "num_hidden_layers": 16, "num_attention_heads": 16,
          "num_key_value_heads": 8, "vocab_size": 65536}),
)  # fmt: skip


def aside() -> set[str]:
    """The half that judges, chosen before any of it ran: of each group every other one, by seed."""
    found: set[str] = set()
    for group in sorted({case.group for case in CASES}):
        names = sorted(case.name for case in CASES if case.group == group)
        random.Random(SEED).shuffle(names)
        found |= set(names[::2])
    return found


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def module_of(case: Case, tiny: bool = False) -> torch.nn.Module:
    """The module, built where torch stands just now."""
    import transformers

    config = transformers.AutoConfig.for_model(case.type, **case.fields)
    config.use_cache = False
    if tiny:
        for name in TINY:
            if isinstance(getattr(config, name, None), int):
                setattr(config, name, TINY[name])
        if case.type in ("gemma3_text", "qwen3", "olmo2", "modernbert", "lfm2", "qwen2_moe"):
            config.layer_types = config.layer_types[:1] + config.layer_types[-1:]
        if case.type == "mamba2":
            config.num_heads, config.head_dim = 8, 16
    kind = torch.bfloat16 if case.precision == "bf16" else torch.float32
    auto: Any = getattr(transformers, case.classes)
    found = auto.from_config(config, dtype=kind, attn_implementation=case.attention)
    return found.train()


def inputs_of(case: Case, module: Any, batch: int, length: int) -> dict[str, Any]:
    """What its users give it, labels too."""
    config = module.config
    kind = torch.bfloat16 if case.precision == "bf16" else torch.float32
    if case.name == "clip_b32":
        text = torch.randint(1, 1000, (batch, 77))
        return {"input_ids": text, "pixel_values": torch.randn(batch, 3, 224, 224), "return_loss": True}
    if case.group == "vision":
        pixels, labels = torch.randn(batch, 3, length, length, dtype=kind), torch.randint(2, (batch,))
        if "Segmentation" in case.classes:
            labels = torch.randint(150, (batch, length, length))
        return {"pixel_values": pixels, "labels": labels}
    if case.classes == "AutoModelForCTC":
        return {"input_values": torch.randn(batch, length, dtype=kind), "labels": torch.randint(1, 30, (batch, 100))}
    if case.group == "audio" and case.name == "ast":
        return {"input_values": torch.randn(batch, length, 128, dtype=kind), "labels": torch.randint(2, (batch,))}
    if case.group == "audio":
        heard = torch.randn(batch, config.num_mel_bins, length, dtype=kind)
        return {"input_features": heard, "labels": torch.randint(1, 1000, (batch, 128))}
    ids = torch.randint(3, min(config.vocab_size, 20000), (batch, length))
    whole = case.classes == "AutoModelForSequenceClassification"
    return {"input_ids": ids, "labels": torch.randint(2, (batch,)) if whole else ids.clone()}


def __getattr__(name: str) -> Callable[..., Any]:
    """The factory of a case."""
    known = next((case for case in CASES if case.name == name), None)
    if known is None:
        raise AttributeError(name)

    def factory(batch: int = known.batch) -> Any:
        module = module_of(known)
        return module, inputs_of(known, module, batch, known.length), lambda output: output.loss

    return factory
