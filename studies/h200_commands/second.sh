#!/bin/bash
# Four minutes on a GPU: second.sh FOLDER. Published runs of FSDP as rehearsals, and training scripts as they are.
# CARRIED: torchtitan 0.2.2 (titan), megatron-core 0.16.1 (megatron), tyro and torchdata (scripts), all unpacked.
cd "$(dirname "$0")/../.." || exit 1
out=$1
mkdir -p "$out"
export PYTHONPATH="src${CARRIED_BASE:+:$CARRIED_BASE}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export FORETELL_RECORDS="$out/.records"
python=${PYTHON:-python3}
part() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2
    shift 2
    echo "== $name"
    local begin=$SECONDS
    timeout -k 5 "$limit" "$@" 2>&1 | tail -c 5000
    echo "== $name: $((SECONDS - begin)) s"
}
part 125 scripts "$python" studies/h200_scripts/run.py --out "$out" --seconds "${SCRIPTS:-110}" ${TINY:+--tiny}
CARRIED=$CARRIED/titan part 165 published "$python" studies/h200_rehearsals/measure.py --out "$out" \
    --cases studies/h200_published/cases.jsonl --seconds "${PUBLISHED:-150}" ${TINY:+--device cpu --tiny --only zoo}
cd "$out" && rm -rf .records && rm -f history* && tar -czf second.tar.gz -- *.json* *.txt && rm -f -- *.json* *.txt && ls -la
