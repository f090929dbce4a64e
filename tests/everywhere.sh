#!/usr/bin/env bash
# Run the numerical tests with other random numbers and BLAS kernels: every seed with each kernel of this CPU.
# Usage: tests/everywhere.sh [SEED ...]       (default: 1 to 10; two parallel runs, or JOBS=; `python` is the one on the path)
#        tests/everywhere.sh --one HASH       (one seed and one kernel from a commit's hash)
set -euo pipefail
cd "$(dirname "$0")/.."

TESTS="tests/kernels tests/covariances tests/likelihoods tests/posteriors tests/bounds tests/optim tests/layers"
TESTS="$TESTS tests/recipes tests/extending tests/test_equivalences.py tests/test_gradient_oracles.py"
WORKERS="-n 0"
kernels=(Haswell Zen)
if grep -qsw avx512f /proc/cpuinfo; then kernels+=(SkylakeX); fi

if [ "${1:-}" = --one ]; then
  WORKERS="${FASTSVGP_TEST_WORKERS:--n 2 --dist worksteal}"
  seeds=("$((16#${2:0:7}))")
  kernels=("${kernels[$((16#${2:7:6} % ${#kernels[@]}))]}")
elif [ $# -gt 0 ]; then
  seeds=("$@")
else
  seeds=(1 2 3 4 5 6 7 8 9 10)
fi

LOGS="$(mktemp -d)"
export TESTS LOGS WORKERS COLUMNS=400 # wide enough for all names
settings() { echo "FASTSVGP_TEST_SEED=$1 OPENBLAS_CORETYPE=$2 OPENBLAS_NUM_THREADS=1"; }

run() { # SEED KERNEL: its line of the summary; keeps the log and the exit status
  local log="$LOGS/$1-$2" status=0
  env $(settings "$1" "$2") python -m pytest -p no:cacheprovider --tb=short -rfE $WORKERS $TESTS >"$log.log" 2>&1 </dev/null || status=$?
  echo "$status" >"$log.status"
  echo "seed $1, $2: exit status $status, $(tail -n 1 "$log.log")"
}
export -f settings run

pairs=()
for seed in "${seeds[@]}"; do
  for kernel in "${kernels[@]}"; do pairs+=("$seed $kernel"); done
done
if [ "${#pairs[@]}" = 1 ]; then echo "$(settings ${pairs[0]}) python -m pytest $TESTS"; fi
run ${pairs[0]} # first, without other runs: it compiles for the cache that all runs share
if [ "${#pairs[@]}" -gt 1 ]; then printf '%s\n' "${pairs[@]:1}" | xargs -P "${JOBS:-2}" -L 1 bash -c 'run "$@"' run; fi

count() { cat "$LOGS"/*.log | sed -nE "s/^(.* )?([0-9]+) $1(,.*)? in [0-9.]+s.*/\2/p" | awk '{n += $1} END {print n + 0}'; }
echo "${#pairs[@]} runs of ${#seeds[@]} seeds with ${kernels[*]}: $(count passed) passed, $(count failed) failed, $(count 'errors?') errors"
bad=0
for pair in "${pairs[@]}"; do
  log="$LOGS/${pair/ /-}"
  if [ "$(cat "$log.status")" = 0 ]; then continue; fi
  bad=1
  failed="$(sed -nE "s/^(FAILED|ERROR) /'/p" "$log.log" | sed -E "s/( - .*)?$/'/")"
  if [ -z "$failed" ]; then tail -n 20 "$log.log" && echo && failed="$TESTS"; fi # a crash outside of the tests
  while read -r test; do echo "$(settings $pair) python -m pytest $test"; done <<<"$failed"
done
if [ "$bad" = 0 ]; then rm -r "$LOGS"; else echo "logs: $LOGS"; fi
exit "$bad"
