#!/bin/bash
# Write the report, and note for later steps what came of it: code, name, headline, and where there is one, report and
# verdict. It never fails: the comment comes first, then the step "Verdict" ends the job.
set -euo pipefail

lines() { sed -e 's/\r$//' -e '/^[[:space:]]*$/d' <<<"$1"; }

mapfile -t captures < <(lines "$TRACES")
mapfile -t alone < <(lines "$BASELINE")
options=(-a "$SIDE_A" -b "$SIDE_B" --min-overlap "$MIN_OVERLAP" -o "$OUTPUT")
for path in "${alone[@]}"; do options+=(--baseline "$path"); done
[[ -z $CLAIMED ]] || options+=(--claimed "$CLAIMED")
[[ -z $STEPS ]] || options+=(--steps "$STEPS")
[[ -z $RANKS ]] || options+=(--ranks "$RANKS")
[[ -z $NSYS ]] || options+=(--nsys "$NSYS")
[[ $ACCEPT_APPARENT != true ]] || options+=(--accept-apparent)
[[ ${REQUIRE_FASTER:-} != true ]] || options+=(--require-faster)

code=0
rm -f "$OUTPUT/summary.md"
"$VENV/bin/traceviz" report "${options[@]}" -- "${captures[@]}" >"$LOG" 2>&1 || code=$?
cat "$LOG"

if [[ -z $NAME ]]; then # the same from run to run, another for each use of the action
    job=${GITHUB_JOB:-job}
    uses=$(printf '%s\n' "${GITHUB_WORKFLOW:-}" "$job" "$MATRIX" "$TRACES" "$SIDE_A" "$SIDE_B" "$STEPS" "$RANKS")
    NAME=traceviz-$job-$(sha256sum <<<"$uses" | cut -c1-8)
fi
{
    echo "code=$code"
    echo "name=$NAME"
    echo "headline=$(sed '/^Written to /,$d' "$LOG" | head -n 3 | tr '\n' ' ')"
    if [[ -f $OUTPUT/summary.md ]]; then
        verdict=$("$VENV/bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["overlap"]["verdict"])' "$OUTPUT/results.json")
        echo "verdict=$verdict"
        echo "report=$OUTPUT"
    fi
} >>"$GITHUB_OUTPUT"
