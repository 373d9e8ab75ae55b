#!/bin/bash
# Nine minutes on a GPU: first.sh FOLDER. Each part has its own limit, and goes on where another failed. What it makes
# lies in FOLDER/first.tar.gz: a calibration, steps of Hugging Face's models, commands of rehearse as typed, ranks of gloo.
# TINY=1 tries it without a GPU.
cd "$(dirname "$0")/../.." || exit 1
out=$1
mkdir -p "$out"
export PYTHONPATH="src${CARRIED_BASE:+:$CARRIED_BASE}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export FORETELL_RECORDS="$out/.records"
python=${PYTHON:-python3}
device=${TINY:+--device cpu --tiny}
part() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2
    shift 2
    echo "== $name"
    local begin=$SECONDS
    timeout -k 5 "$limit" "$@" 2>&1 | tail -c 6000
    echo "== $name: $((SECONDS - begin)) s"
}
if [ -z "$TINY" ]; then
    nvidia-smi --query-gpu=name,clocks.sm,power.draw,power.limit,driver_version --format=csv,noheader
    part 130 calibrate "$python" -m foretell calibrate --device cuda --minutes 1.75 --out "$out/calibration.json"
fi
part 235 models "$python" studies/h200_hf_models/measure.py --out "$out" \
    --seconds "${MODELS:-205}" $device
part 150 commands "$python" studies/h200_commands/run.py --out "$out" --seconds 120 ${TINY:+--tiny}
export OMP_NUM_THREADS=1
part 50 links taskset -c 0-3 "$python" -m foretell calibrate --device cpu --only collectives --minutes 0.55
part 95 gloo "$python" benchmarks/rehearsal.py 4 --steps 6 --seconds 65 --out "$out/gloo.jsonl"
cd "$out" && rm -rf .records && tar -czf first.tar.gz -- *.json* pages.txt && rm -f -- *.json* pages.txt && ls -la
