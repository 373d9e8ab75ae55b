#!/bin/sh
# Every engine on one GPU, VGG-16 and GPT2-medium in their real sizes. Started again, it goes on.
# run.sh [SEEDS [MINUTES]], in the folder of the study or where it is to be.
set -eu
exec "${PYTHON:-python3}" -m foretell bench --pair vgg16,gpt2-medium --ranks 1 --seeds "${1:-2}" --within "${2:-9}" --out .
