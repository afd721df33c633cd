#!/usr/bin/env bash
# Whether every package of the lock for GPUs exists for both Pythons as a wheel for Linux with glibc 2.31
# (deepspeed, cellpylib and zss as source). Asks the package indexes of your uv and downloads nothing that is installed.
#
#   deploy/check_lock.sh [LOCK]
set -euo pipefail
lock=${1:-$(dirname "${BASH_SOURCE[0]}")/../launch/locks/gpu.txt}
command -v uv >/dev/null || { echo "check_lock.sh: uv is needed: pip install uv" >&2; exit 2; }
nowhere=$(mktemp -d)
trap 'rm -rf "$nowhere"' EXIT
for python in 3.11 3.12; do
    found=$(uv pip install --dry-run --no-deps --only-binary :all: --no-binary deepspeed --no-binary cellpylib \
        --no-binary zss --target "$nowhere/target" \
        --python-platform x86_64-manylinux_2_31 --python-version "$python" -r "$lock" 2>&1) ||
        { echo "$found" >&2; exit 1; }
    echo "Python $python: $(grep -c '^ + ' <<<"$found") of $(grep -c == "$lock") packages of $(basename "$lock") exist"
done
