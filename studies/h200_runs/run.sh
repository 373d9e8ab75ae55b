#!/bin/sh
# One part of the runs: run.sh calibrate|cpu|again|gpu|after [more options of run.py]. Results go to $OUT.
set -eu
cd "$(dirname "$0")/../.."
part=$1
shift
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1
python=${PYTHON:-python3}
case $part in
after) exec "$python" studies/h200_runs/run.py calibrate --name after --out "$OUT" "$@" ;;
*) exec "$python" studies/h200_runs/run.py "$part" --out "$OUT" "$@" ;;
esac
