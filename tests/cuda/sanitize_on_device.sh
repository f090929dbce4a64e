#!/usr/bin/env bash
# Run every kernel once under a tool of compute-sanitizer, on a machine with a GPU: minutes per
# tool.
# Usage: tests/cuda/sanitize_on_device.sh memcheck|racecheck|synccheck|initcheck [FAMILY ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ $# = 0 ]; then
  sed -n 's/^# Usage: /usage: /p' "$0" >&2
  exit 2
fi
if ! command -v compute-sanitizer >/dev/null; then
  echo "compute-sanitizer is not on the path; it comes with the CUDA toolkit" >&2
  exit 2
fi
python="$(command -v python || command -v python3)"
tool="$1"
shift
export FASTSVGP_TEST_POOL=0 # inside CuPy's memory pool the tools cannot see array bounds
exec compute-sanitizer --tool "$tool" --error-exitcode 1 \
  "$python" tests/cuda/small_on_device.py "$@"
