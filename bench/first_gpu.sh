#!/usr/bin/env bash
# The first half hour on a GPU: four stages of at most nine minutes each. docs/first_gpu.md says what
# their figures decide.
# Usage: bench/first_gpu.sh STAGE OUT [--small]    STAGE is 1, 2, 3 or 4, OUT the folder of its files
#        bench/first_gpu.sh --list                 the parts: stage, limit in seconds, name
# With --small the arrays are tiny: a rehearsal, seconds a part. Nothing is installed: the checkout
# is on PYTHONPATH, and `python3` has CuPy with NVRTC, NumPy, SciPy, Numba and pytest with xdist;
# GPyTorch with PyTorch, JAX, ncu and compute-sanitizer are used where they are found.
# All output is in OUT/stageSTAGE.log as it comes. A part that fails or exceeds its limit does not
# stop the others; the exit status is 1 if one of them did. Compiled CUDA kernels stay in
# FASTSVGP_FIRST_GPU_CACHE (~/.cache/fastsvgp-first-gpu). FASTSVGP_COMMIT names the commit where
# there is no git.
set -uo pipefail
cd "$(dirname "$0")/.."

part() { # SECONDS NAME COMMAND ...
  local limit="$1" name="$2" began=$SECONDS status=0
  shift 2
  if [ "$out" = --list ]; then
    echo "$stage $limit $name"
    return
  fi
  if [ -n "$small" ]; then limit=$((4 * limit)); fi # a rehearsal may run beside other work
  echo "=== $name: at most $limit s"
  # Ctrl-C, even where it is ignored here, lets pytest report the failures so far
  timeout --signal=INT --kill-after="$GRACE" "$limit" env --default-signal=INT "$@" </dev/null ||
    status=$?
  case "$status" in
    0) echo "=== $name: passed in $((SECONDS - began)) s" ;;
    124 | 137) echo "=== $name: STOPPED after $((SECONDS - began)) s" ;;
    *) echo "=== $name: FAILED with status $status in $((SECONDS - began)) s" ;;
  esac
  if [ "$status" != 0 ]; then failed="$failed; $name"; fi
}
GRACE=5 # seconds until a part that ignores Ctrl-C is killed

machine() {
  nvidia-smi
  nvcc --version
  python3 bench/first_checks.py facts && python3 -m fastsvgp info
}

# the call alone, with its kernels one after the other, and at the clocks of the other tables
profiled() { # N
  local sections=(--section SpeedOfLight --section WarpStateStats --section MemoryWorkloadAnalysis)
  ncu --profile-from-start off --clock-control none "${sections[@]}" \
    python3 bench/one_call.py --worst "$1" "$out" ${small:+"$small"}
}

# Checks: is everything there, does every kernel compile, is a step one graph, are values correct?
stage_1() {
  part 45 "facts" bash -c machine
  part 75 "cubins" python3 bench/first_checks.py cubins
  part 60 "graphs" python3 bench/first_checks.py captures ${small:+"$small"}
  part 60 "small runs" python3 tests/cuda/small_on_device.py ${small:+chevron}
  local tests=(python3 -m pytest -m on_device -rfE --tb=short -p no:cacheprovider --dist worksteal)
  local waves=tests/cuda/test_waves_cuda.py
  part 180 "tests" "${tests[@]}" "tests/cuda${small:+/test_distances_cuda.py}" --ignore="$waves" \
    -n "${small:+2}${full:+$(nproc)}"
  part 75 "several waves" "${tests[@]}" "$waves" -n "${small:+1}${full:+4}" \
    ${small:+-k "small and tril_product"}
}

# Times: a step and its parts against their floors, and against other programs; then the rest.
stage_2() {
  local sizes=(512,1024 1000,1000 2000,1000)
  local seconds=20
  if [ -n "$small" ]; then sizes=(20,30) seconds=0; fi
  part 160 "a step and its products" python3 bench/first_times.py step products \
    --results "$out" ${small:+"$small"}
  part 160 "other programs" python3 bench/peers.py --device cuda --sizes "${sizes[@]}" \
    --seconds "$seconds"
  part 190 "other kernels" python3 bench/first_times.py triangular pairwise fourier patches \
    chevron --results "$out" ${small:+"$small"}
}

# Tools: errors that correct results can hide, and what the four worst kernels wait for.
stage_3() {
  part 130 "memcheck" tests/cuda/sanitize_on_device.sh memcheck ${small:+chevron}
  part 190 "racecheck" tests/cuda/sanitize_on_device.sh racecheck ${small:+chevron}
  local n
  for n in 1 2 3 4; do part 45 "ncu, kernel $n" bash -c "profiled $n"; done
}

# Sweeps: the constants that were chosen by counting.
stage_4() {
  part 180 "cut sums" python3 bench/sweeps.py slices ${small:+"$small"}
  part 120 "factors" python3 bench/sweeps.py cholesky ${small:+"$small"}
  part 120 "covariances" python3 bench/sweeps.py direct ${small:+"$small"}
  part 90 "inverses" python3 bench/sweeps.py inverse ${small:+"$small"}
}

run() {
  "stage_$stage"
  if [ "$out" != --list ]; then
    echo "=== stage $stage: $SECONDS s${failed:+; not passed: ${failed#; }}"
    [ -z "$failed" ]
  fi
}

stage="${1:-}" out="${2:-}" small="${3:-}" failed=""
if [ "$stage" = --list ]; then
  out=--list
  for stage in 1 2 3 4; do run; done
  exit
fi
if ! [[ "$stage" =~ ^[1-4]$ && -n "$out" && "$small" =~ ^(--small)?$ ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
fi
full=yes
if [ -n "$small" ]; then full=; fi
mkdir -p "$out"
out="$(cd "$out" && pwd)"
cache="${FASTSVGP_FIRST_GPU_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fastsvgp-first-gpu}"
mkdir -p "$cache"
export -f machine profiled
export out small PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export FASTSVGP_CACHE_DIR="$cache/cubins" CUPY_CACHE_DIR="$cache/cupy"
run 2>&1 | tee -a "$out/stage$stage.log"
