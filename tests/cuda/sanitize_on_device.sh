#!/usr/bin/env bash
# The tests of the CUDA kernels under compute-sanitizer, for a machine with a GPU: memory first, then races.
# Usage: tests/cuda/sanitize_on_device.sh [arguments for pytest]
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v compute-sanitizer >/dev/null; then
  echo "compute-sanitizer is not on the path; it comes with the CUDA toolkit" >&2
  exit 2
fi
if ! python -c 'import cupy; assert cupy.cuda.runtime.getDeviceCount()' 2>/dev/null; then
  echo "CuPy finds no device; python -m fastsvgp info says why" >&2
  exit 2
fi
export FASTSVGP_TEST_POOL=0  # within a block of CuPy's memory pool the tools see no bounds
for tool in memcheck racecheck; do
  compute-sanitizer --tool "$tool" --error-exitcode 1 --target-processes all python -m pytest -q -m on_device tests/cuda "$@"
done
