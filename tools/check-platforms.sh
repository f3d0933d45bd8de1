#!/bin/bash
# Check that all that looking at traces needs has wheels for macOS, on both of its processors and for each Python.
#
#   tools/check-platforms.sh [PYTHON]      # the Python whose pip resolves; nothing is built or installed
#
# pip resolves for the other platform, but reads the conditions of dependencies ("; sys_platform == …") as for this one.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${1:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for platform in macosx_12_0_arm64 macosx_12_0_x86_64; do
    for version in 3.10 3.11 3.12 3.13; do
        "$python" -m pip install --quiet --quiet --dry-run --ignore-installed --target "$folder" --only-binary=:all: \
            --platform "$platform" --python-version "$version" "$root[png,notebook,cluster]"
        echo "Python $version on $platform: wheels of all dependencies"
    done
done
