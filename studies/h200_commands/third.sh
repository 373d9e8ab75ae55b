#!/bin/bash
# What the first two left: third.sh FOLDER. The probe under power with products of all sizes, and models in the same minutes;
# gloo; two scripts, two published runs, a pipeline. SKIP names parts to leave out.
cd "$(dirname "$0")/../.." || exit 1
out=$1
mkdir -p "$out"
export PYTHONPATH="src${CARRIED_BASE:+:$CARRIED_BASE}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export FORETELL_RECORDS="$out/.records"
python=${PYTHON:-python3}
part() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2
    shift 2
    [[ " $SKIP " == *" $name "* ]] && return
    echo "== $name"
    local begin=$SECONDS
    timeout -k 5 "$limit" "$@" 2>&1 | tail -c 2500
    echo "== $name: $((SECONDS - begin)) s"
}
probes=launch,wrapped,matmul,memory_bound,normalisation,attention,sustained,loss,optimizer
part 75 calibrate "$python" -m foretell calibrate --device cuda --only $probes --minutes 1.1 --out "$out/calibration.json"
part 75 models "$python" studies/h200_hf_models/measure.py --out "$out" --seconds 65 --aside
export OMP_NUM_THREADS=1
CUDA_VISIBLE_DEVICES="" part 40 links taskset -c 0-3 "$python" -m foretell calibrate --device cpu --only collectives \
    --minutes 0.4
CUDA_VISIBLE_DEVICES="" part 75 gloo "$python" benchmarks/rehearsal.py 4 --steps 6 --seconds 50 --out "$out/gloo.jsonl"
unset OMP_NUM_THREADS
part 50 megatron "$python" studies/h200_scripts/run.py --out "$out" --seconds 45 --only Megatron
part 50 fsdp2 "$python" studies/h200_scripts/run.py --out "$out" --seconds 45 --only FSDP2
CARRIED=$CARRIED/titan part 45 published "$python" studies/h200_rehearsals/measure.py --out "$out" \
    --cases studies/h200_published/cases.jsonl --seconds 40 --only "hidden=4096,heads=32,vocab"
CARRIED=$CARRIED/titan part 45 published "$python" studies/h200_rehearsals/measure.py --out "$out" \
    --cases studies/h200_published/cases.jsonl --seconds 40 --only "hidden=5120"
part 80 pipeline "$python" studies/h200_commands/run.py --out "$out" --seconds 75 --only pp2
cd "$out" && rm -rf .records history* && tar -czf third.tar.gz -- *.json* *.txt && rm -f -- *.json* *.txt && ls -la
