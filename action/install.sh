#!/bin/bash
# Install traceviz of this checkout into a virtual environment: $PYTHON makes it, in $VENV.
set -euo pipefail
"$PYTHON" -m venv "$VENV"
"$VENV/bin/python" -m pip install --quiet "${GITHUB_ACTION_PATH}[png]"
