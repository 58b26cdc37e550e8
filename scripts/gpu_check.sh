#!/usr/bin/env bash
# Everything that only a machine with a CUDA card can show, in one run of less than eight
# minutes: conformance, the operation table, equal ledgers, retirement on real work, the
# pool hazard, compute-sanitizer where it is installed, and the benchmark.
#
#   scripts/gpu_check.sh [--wheels DIR] [--out FILE] [--commit SHA] [--seconds N]
#
# --wheels   a folder of wheels: what the interpreter lacks is installed from it, beside
#            the repository and without any network
# --out      where the report goes (build/hardware-evidence.json); a report that passed
#            is kept as docs/testing/hardware-evidence.json, with the commit it names
# --commit   the commit that is checked, where there is no clean checkout to ask
# --seconds  the whole time (470)
#
# Needs bash and a Python >= 3.11 (PYTHON=...) with NumPy and CuPy 14, or wheels of them.
# Ends with 0 if every check passed, 1 if one failed, 2 for wrong arguments, and 3 if
# there is no card or a package is missing: a card that is asked for is never skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python="${PYTHON:-python3}"
wheels=""
given=()
while [ "$#" -gt 0 ]; do
    case "$1" in
        --wheels | --out | --commit | --seconds)
            if [ "$#" -lt 2 ]; then
                echo "gpu_check: $1 needs a value" >&2
                exit 2
            fi
            if [ "$1" = --wheels ]; then wheels="$2"; else given+=("$1" "$2"); fi
            shift 2
            ;;
        -h | --help)
            sed -n '2,17p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'
            exit 0
            ;;
        *)
            echo "gpu_check: there is no argument '$1'; see --help" >&2
            exit 2
            ;;
    esac
done

needed=(numpy scipy optree opt_einsum cupy pytest)
missing() {
    "$python" - "$@" <<'PY'
import sys
from importlib import util

print(" ".join(name for name in sys.argv[1:] if util.find_spec(name) is None))
PY
}

if [ -n "$wheels" ]; then
    if [ ! -d "$wheels" ]; then
        echo "gpu_check: there is no folder '$wheels'" >&2
        exit 2
    fi
    site="$PWD/.cache/gpu_check/site"
    export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
    if [ -n "$(missing "${needed[@]}" xdist)" ]; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade \
            --target "$site" "$wheels"/*.whl
    fi
fi
lacking="$(missing "${needed[@]}")"
if [ -n "$lacking" ]; then
    echo "gpu_check: not installed: $lacking (give --wheels a folder that has them)" >&2
    exit 3
fi

export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
# Kernels load when their module does: a lane that is held must not wait for that.
export CUDA_MODULE_LOADING=EAGER
exec "$python" scripts/gpu_check.py ${given[@]+"${given[@]}"}
