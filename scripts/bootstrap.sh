#!/bin/sh
# Find a Python that can run Frazil, and run scripts/bootstrap.py with it.
# Plain sh: a fresh machine may have nothing else. PYTHON=... overrides the search.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
venv_python="$here/../.venv/bin/python"

fits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    if ! command -v "$PYTHON" >/dev/null 2>&1; then
        echo "frazil: PYTHON=$PYTHON does not exist. Type: make setup PYTHON=/path/to/python3.11" >&2
        exit 1
    fi
    if ! fits "$PYTHON"; then
        echo "frazil: PYTHON=$PYTHON is older than 3.11. Type: make setup PYTHON=/path/to/python3.11" >&2
        exit 1
    fi
    python=$PYTHON
elif fits "$venv_python"; then
    python=$venv_python
else
    python=
    for candidate in python3.11 python3.12 python3.13 python3.14 python3 python; do
        if fits "$candidate"; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        if command -v apt-get >/dev/null 2>&1; then
            fix="sudo apt-get install python3.11 python3.11-venv"
        elif command -v dnf >/dev/null 2>&1; then
            fix="sudo dnf install python3.11"
        elif command -v brew >/dev/null 2>&1; then
            fix="brew install python@3.11"
        else
            fix="make setup PYTHON=/path/to/python3.11"
        fi
        echo "frazil: no Python 3.11 or later on the PATH. Type: $fix" >&2
        exit 1
    fi
fi

exec "$python" "$here/bootstrap.py" "$@"
