"""Options of Megatron-LM that change no cost, or too little to tell; and those of runs that no plan describes.

Looked up in Megatron-LM main of 2026-08 (d98e8a6): megatron/training/arguments.py, and what its examples set.
"""

from __future__ import annotations

from typing import Final

_FREE: Final = {
    "data and tokenizer": """
        data-path* data-args-path per-split-data-args-path train-data* valid-data* test-data* split
        data-cache-path data-impl mock-data num-workers no-mmap-bin-files dataloader-type vocab-file
        no-create-attention-mask-in-dataloader create-attention-mask-in-dataloader num-dataset-builder-threads
        tokenizer-* tiktoken-* merge-file vocab-extra-ids reset-position-ids reset-attention-mask eod-mask-loss
        special-tokens make-vocab-size-divisible-by mask-prob short-seq-prob
    """,
    "learning rate, optimizer's numbers, length of the run": """
        lr lr-* min-lr decoupled-* adam-* weight-decay* start-weight-decay end-weight-decay clip-grad
        train-iters train-samples train-tokens exit-* seed loss-scale* initial-loss-scale min-loss-scale
        hysteresis override-opt* use-checkpoint-opt* init-method-* calculate-per-token-loss rampup-batch-size
        step-batch-size-schedule eval-* skip-train train-sync-interval
    """,
    "files and logs": """
        save* load* no-load-* no-save-* finetune ckpt-* dist-ckpt-* auto-detect-ckpt-format async-save
        pretrained-checkpoint no-use-*-from-checkpoint-args exit-on-* log-* logging-*
        tensorboard-* wandb-* timing-* profile* use-pytorch-profiler manual-gc* distributed-backend
        distributed-timeout-* local-rank local_rank rerun-mode result-rejected-* no-check-for-nan* check-for-*
        use-cpu-initialization init-model-with-meta-device no-one-logger straggler* empty-unused-memory-level
        enable-experimental inference-* max-tokens-to-oom use-dist-ckpt
    """,
    "the same work by another kernel, or in the kernel that is priced anyway": """
        use-mcore-models use-legacy-models transformer-impl use-te attention-backend use-flash-attn*
        no-masked-softmax-fusion no-bias-*-fusion no-rope-fusion bias-*-fusion no-gradient-accumulation-fusion
        no-query-key-layer-scaling apply-query-key-layer-scaling attention-softmax-in-fp32 no-persist-layer-norm
        cross-entropy-loss-fusion cross-entropy-fusion-impl apply-layernorm-1p norm-epsilon layernorm-epsilon
        no-position-embedding rotary-percent rotary-seq-len-* rotary-scaling-* use-rope-scaling rope-*
        rotary-interleaved no-async-tensor-model-parallel-allreduce disable-bf16-reduced-precision-matmul
        accumulate-allreduce-grads-in-fp32 no-tie-* te-rng-tracker mscale* DDP-impl
    """,
    "dropout, which is fused with the additions beside it": """
        attention-dropout hidden-dropout dropout
    """,
    "experts: how tokens are routed, not how many": """
        moe-aux-loss-coeff moe-z-loss-coeff moe-router-load-balancing-type moe-router-pre-softmax
        moe-router-dtype moe-router-bias-* moe-router-force-load-balancing moe-per-layer-logging
        moe-grouped-gemm moe-permute-fusion moe-router-fusion moe-flex-dispatcher-backend
        moe-token-dispatcher-type=alltoall moe-token-dispatcher-type=flex
        moe-router-padding-for-fp8 moe-apply-probs-on-input moe-pad-* mtp-loss-scaling-factor
    """,
    "low precision: how scales are found": """
        fp8-amax-* fp8-margin fp8-interval fp8-recipe fp8-wgrad keep-fp8-*
    """,
    "the program, and how it is started": """
        () m u
    """,
}

FREE: Final = tuple(word for words in _FREE.values() for word in words.split())
"""Patterns of options, some with the values that are meant."""

_MODEL: Final = "not a text decoder, and not priced as one"
_GPT: Final = "a script of pretrain_gpt.py"
_OWN: Final = "foretell predict MODEL --plan, with a model of `foretell list models`"

REFUSED: Final = {
    "language-model-type": f"a vision-language model: {_MODEL} | {_GPT}",
    "vision-model-type": f"a vision-language model: {_MODEL} | {_GPT}",
    "img-h": f"a model of images: {_MODEL} | {_GPT}",
    "patch-dim": f"a model of images: {_MODEL} | {_GPT}",
    "image-token-id": f"a vision-language model: {_MODEL} | {_GPT}",
    "model-provider": f"a model of several kinds of input: {_MODEL} | {_GPT}",
    "audio-encoder-model": f"a model of sound and text: {_MODEL} | {_GPT}",
    "encoder-tp": f"a model of several kinds of input: {_MODEL} | {_GPT}",
    "load-teacher": "a teacher beside the model: no plan describes distillation | the command without it",
    "kd-*": "a teacher beside the model: no plan describes distillation | the command without it",
    "grpo-*": "reinforcement learning: no plan describes its generation | a pretraining script",
    "retriever-*": "a retriever: no model here has it | a pretraining script",
    "ict-*": "a retriever: no model here has it | a pretraining script",
    "retro-*": "a retriever: no model here has it | a pretraining script",
    "mlp-type": "residual experts: no model here has them | a script with --num-experts of one size",
    "topk-*": f"a mixture that no model here has | {_OWN}",
    "ds-sequence-parallel-fpdt": "attention in chunks: no plan describes it | --ds-sequence-parallel-size",
    "enable-zbh1-pipeline": "a schedule of Megatron-DeepSpeed that plans do not have | 1F1B",
}  # fmt: skip
"""Options of a run that a plan and a model of the zoo do not describe: what they mean, and a way out."""

UNLIKE: Final = {
    "hybrid-layer-pattern": "layers of several kinds (Mamba, attention), which no model here has",
    "hybrid-override-pattern": "layers of several kinds (Mamba, attention), which no model here has",
    "mamba-state-dim": "layers of Mamba, which no model here has",
    "window-attn-skip-freq": "windows of attention in some layers only, which no model here has",
    "heterogeneous-layers-config-path": "layers that differ by a file, which no model here has",
    "encoder-num-layers": "an encoder and a decoder, which these options do not tell",
    "encoder-seq-length": "an encoder and a decoder, which these options do not tell",
}
"""Options of models that the zoo has not: the plan is read, and the model is not guessed."""
