#!/usr/bin/env bash
# Every kernel once under a tool of compute-sanitizer, for a machine with a GPU: some minutes a tool.
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
export FASTSVGP_TEST_POOL=0 # within a block of CuPy's memory pool the tools see no bounds
exec compute-sanitizer --tool "$tool" --error-exitcode 1 "$python" tests/cuda/small_on_device.py "$@"
