#!/usr/bin/env bash
# Run the tests marked on_device with the real CuPy, over a stand-in for the driver and its
# libraries: this covers what the emulation of CuPy cannot show. If the stand-in cannot be built the
# script reports why, and succeeds. Its graphs replay what was captured if the sources for that are
# there: otherwise a launch runs the function again.
# Usage: tests/cuda/on_standin.sh WORKDIR [arguments for pytest]
# `python` is the one on the path, with the requirements of the package's tests. What an earlier
# call has built in WORKDIR is reused, also by another checkout: nothing there depends on the place.
set -euo pipefail
cd "$(dirname "$0")/../.."
standin=../shared/cuda_standin
work="$1"
shift

skipped() {
  echo "no tests on the stand-in driver: $1"
  exit 0
}
python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
  skipped "it is built for Python 3.11, this is another"
[ -f "$standin/build.sh" ] || [ -f "$work/built" ] || skipped "$standin is not there"
command -v g++ >/dev/null || skipped "g++ is not on the path"
command -v nvcc >/dev/null || skipped "nvcc, which has the CUDA headers, is not on the path"
mkdir -p "$work"
exec 8>"$work/lock" && flock 8 # another run may be building it
if [ ! -f "$work/built" ]; then
  rm -rf "$work/sources" && cp -r "$standin" "$work/sources"
  if [ -d "${standin}_replay" ]; then cp "${standin}_replay"/fake*.{cpp,py} "$work/sources"; fi
  PY=python "$work/sources/build.sh" "$work" '$FASTSVGP_CHECKOUT' \
    >"$work/settings" 2>"$work/log" </dev/null || {
    tail -n 3 "$work/log"
    if compgen -G "$work/whl/cupy*.whl" >/dev/null &&
      compgen -G "$work/whl/cython*.whl" >/dev/null; then
      echo "the stand-in driver does not build" >&2
      exit 1
    fi
    skipped "CuPy or Cython cannot be downloaded"
  }
  # the place of the checkout is read from the environment
  sed -i 's|"$FASTSVGP_CHECKOUT\(/[^"]*\)"|os.environ["FASTSVGP_CHECKOUT"] + "\1"|' \
    "$work/fakepy/fakegpu.py"
  touch "$work/built"
fi
exec 8>&-
export FASTSVGP_CHECKOUT="$PWD"
eval "$(head -n 1 "$work/settings")"
# FAKE_NO_FULL_FIX keeps the marks of what is a defect of ours
export PYTHONPATH="$PYTHONPATH:$PWD/tests" FAKE_NO_FULL_FIX=1 OPENBLAS_NUM_THREADS=1
python -m pytest ${FASTSVGP_TEST_WORKERS:--n 2 --dist worksteal} -p cuda_host.standin \
  -p fakegpu_plugin -p no:cacheprovider -m on_device tests/cuda "$@"
