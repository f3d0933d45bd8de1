#!/bin/bash
# Write tests/constraints-development.txt anew: the newest version of everything that the tests, ruff and mypy need.
#
#   tools/lock-development.sh [PYTHON]
#   pip install --constraint tests/constraints-development.txt -e '.[dev]'
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lock=$root/tests/constraints-development.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${1:-python3}
"$python" -m pip install --quiet --dry-run --ignore-installed --report "$folder/report.json" "$root[dev]"
{
    echo "# What the tests last passed with; tools/lock-development.sh writes it anew."
    "$python" - "$folder/report.json" <<'PYTHON'
import json, sys
packages = (one["metadata"] for one in json.load(open(sys.argv[1]))["install"])
print(*sorted(f"{one['name'].lower()}=={one['version']}" for one in packages if one["name"] != "traceviz-gpu"), sep="\n")
PYTHON
} >"$folder/lock"
mv "$folder/lock" "$lock"
