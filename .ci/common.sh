# What .ci/run and .ci/nightly share; sourced by them, never run.
exec </dev/null
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE VIRTUAL_ENV PYTEST_ADDOPTS COLUMNS
export CI=true PIP_QUIET=2 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 DEBIAN_FRONTEND=noninteractive
# Most of what is installed is never imported: Python compiles the rest as it is.
export PIP_COMPILE=0

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
clone=$work/clone
logs=$work/logs
mkdir -p "$clone" "$logs"
declare -A background=()
trap 'for one in "${background[@]}"; do kill -- "-$one" 2>/dev/null && wait "$one" || true; done; rm -rf "$work"' EXIT

# The tests that depend on the Python and on versions most: what reads captures and sorts rows, every command, all of the API.
QUICK="tests/traceviz/test_api.py tests/traceviz/test_cli.py tests/analyzers/readers/nsys/test_nsys_export.py tests/analyzers/readers/nsys/test_schemas.py \
tests/analyzers/readers/kineto/test_kineto_tables.py tests/analyzers/arrays tests/analyzers/verdict/test_check.py"

step() { printf '\n== %3d s  %s\n' "$SECONDS" "$*"; }
fail() { printf '\n%s: %s\n' "$0" "$*" >&2; exit 1; }
closing_line() { grep -E '^=+ .*[0-9]+ passed.* in [0-9.]+s.* =+$' "$1" | tail -1; }
version_of() { "$2/bin/python" -c "import importlib.metadata as m; print(m.version('$1'))"; }

# The n-th ```bash block of the README.
readme() { awk -v n="$1" '/^```bash$/ { on = (++i == n); next } /^```/ { on = 0 } on' README.md; }

# A copy of what git tracks, and the folder it works in from here on.
copy_of_what_git_tracks() {
    command -v git >/dev/null || need_packages git
    python3 -c "import pip, venv" 2>/dev/null || need_packages python3 python3-pip python3-venv
    git -c safe.directory='*' -C "$root" ls-files -z | tar -C "$root" --null --files-from=- -c | tar -C "$clone" -x
    cd "$clone"
}

need_packages() { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" >/dev/null; }

need_nsys() {
    if [[ -z ${TRACEVIZ_NSYS:-} ]]; then
        local prefix=/opt/nsys
        [[ -x $prefix/bin/nsys ]] || prefix=${XDG_CACHE_HOME:-$HOME/.cache}/traceviz-ci/nsys
        tools/install-nsys.sh "$prefix"
        export TRACEVIZ_NSYS=$prefix/bin/nsys
    fi
    "$TRACEVIZ_NSYS" --version
}

# Run something as where there is no nsys: if one lies where it is looked for, another is named, which is nowhere.
without_nsys() {
    local find="import sys; from analyzers.readers.nsys.export import find_nsys; sys.exit(not any(find_nsys()))"
    if env -u TRACEVIZ_NSYS .venv/bin/python -c "$find"; then
        TRACEVIZ_NSYS=/nowhere/nsys "$@"
    else
        env -u TRACEVIZ_NSYS "$@"
    fi
}

# Those of the default selection that need a real nsys, one after the other: beside another its agent loses connection.
with_nsys() {
    need_nsys >/dev/null
    .venv/bin/python -m pytest -m "nsys and not nightly and not browser and not torch and not gpu"
    "$TRACEVIZ_NSYS" --version
}

# The path of a Python of this version that really runs: shims may exist without working.
find_python() {
    local python
    for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null && echo "$python" && return
    done
    return 1
}

pythons() { local version; for version in 3.10 3.11 3.12 3.13; do ! find_python "$version" >/dev/null || echo "$version"; done; }

# Tests in a virtual environment of their own: a Python, a name, what pytest is told, and options for pip.
try_python() {
    local python=$1 name=$2 tests=$3 venv=$work/$2
    shift 3
    "$python" -m venv --without-pip "$venv"
    "$python" -m pip --python "$venv" install "$@" ".[dev]"
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pytest --hypothesis-profile=brief -p no:cacheprovider $tests
    printf 'Python %s, pandas %s\n' "$("$venv/bin/python" -V)" "$(version_of pandas "$venv")"
}

# Run something beside what follows, a process group of its own; `wait_for` it by its name.
in_background() {
    local name=$1
    shift
    set -m
    (set -e; "$@") >"$logs/$name" 2>&1 &
    background[$name]=$!
    set +m
}

wait_for() {
    local name=$1 status=0
    wait "${background[$name]}" || status=$?
    unset "background[$name]"
    [[ $status == 0 ]] || { cat "$logs/$name"; fail "$name fails"; }
    closing_line "$logs/$name"
    tail -1 "$logs/$name"
}
