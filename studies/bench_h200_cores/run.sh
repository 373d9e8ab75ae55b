#!/bin/sh
# Scaling over the cores of one machine, a rank each. Started again, it goes on.
# run.sh ours|others [MINUTES], in the folder of the study or where it is to be.
#
# The pairs are `image` and `language` with models large enough that a step is more than messages: a VGG-11 of 16 to 128
# filters that reads digits at 128 pixels, and a GPT of 16 layers.
set -eu
export CUDA_VISIBLE_DEVICES=
ours=ddp,zero1,fsdp2-zero3,fsdp2-zero2
pipelines=one-f-one-b,gpipe,data-pipeline,stash
image=spatial,filter,data-filter,data-spatial,channel
language=tensor,data-tensor,tensor-sp
case $1 in
ours) ranks=1..16 engines_image=$ours,$image,$pipelines engines_language=$ours,$language,$pipelines ;;
others)
    ranks=1,4,16
    engines_image=deepspeed-zero2,accelerate,fairscale-sharded,deepspeed-zero1,deepspeed-zero3,lightning
    engines_language=$engines_image,megatron-tensor
    ;;
esac
bench() {
    "${PYTHON:-python3}" -m foretell bench "$@" --batch 4 --steps 6 --look 0 --ranks "$ranks" --within "$minutes" --out . >/dev/null
}
minutes=${2:-4}
bench --pair image --engine "$engines_image" \
    --model vgg:convolutions=1/1/2/2/2,image=128,classes=10,width=16,pooled=1,dense=64,dropout=0
bench --pair language --engine "$engines_language" \
    --model gpt2:layers=16,hidden=128,heads=16,vocab=128,seq=64,dropout=0,tied=false
