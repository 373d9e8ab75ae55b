#!/bin/bash
# A training of Llama 3 8B with Megatron-LM, as people write them.
GPUS_PER_NODE=8
NNODES=2

MODEL=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --position-embedding-type rope --rotary-base 500000
    --untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 8192
)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py "${MODEL[@]}" \
    --tensor-model-parallel-size 4 --sequence-parallel \
    --pipeline-model-parallel-size 2 \
    --micro-batch-size 1 --global-batch-size 64 \
    --bf16 --use-distributed-optimizer --overlap-grad-reduce \
    --data-path my-data --train-iters 10000
