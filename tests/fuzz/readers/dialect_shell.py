"""Launch scripts: what a shell would make of them, never run."""

from fuzz.mutate import text_form
from fuzz.reader import Reader
from fuzz.readers._dialects import ENTRIES, written

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
GPUS=8; NNODES=${SLURM_NNODES:-2}
WORLD=$(($GPUS * $NNODES % 100))
if [ $WORLD -gt 8 ]; then TP=4; elif [[ $WORLD == 1* ]]; then TP=2; else TP=1; fi
case ${SIZE:-8b} in 70b) L=80;; 8b|7b) L=32;; *) exit 1;; esac
ARGS=(
    --num-layers $L --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --rotary-base 500000
    --untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 8192
)
for one in 1 2; do X=$(( 1 << one >> 1 )); done
while [ $# -gt 0 ]; do case $1 in --tp) TP=$2; shift;; esac; done
f() { local pp=$1; torchrun --nproc_per_node $GPUS --nnodes $NNODES pretrain_gpt.py "${ARGS[@]}" \\
    --micro-batch-size 1 --global-batch-size $((X * 2 ** 5)) --bf16 --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size $pp --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce; }
f ${PP:-2}
"""
LAYOUT = (
    "pretrain_gpt.py --pipeline-model-parallel-size 4 --bf16 --micro-batch-size 1 --global-batch-size 64 "
    "--pipeline-model-parallel-layout 'Ettt|(tt)*2t*4,|t*10|tttt(t)*7L' --overlap-grad-reduce\n"
)
SLURM = (
    "sbatch <<EOF\n#SBATCH --nodes=4\nsrun pretrain_gpt.py --num-layers \\${B:-32} --bf16 --micro-batch-size 1\nEOF\n"
)
READER = Reader(
    form=text_form, samples=written("a script", SCRIPT, SCRIPT, LAYOUT, SLURM), entries=ENTRIES, ending=".sh"
)
