#!/bin/bash
# End the job as the report ended: 0 the bar is met, 1 it is not, 2 bad input, 3 inconclusive; a claim counts likewise.
set -euo pipefail
if [[ $CODE != 0 ]]; then
    printf '::error title=traceviz::%s\n' "${HEADLINE//%/%25}"
fi
exit "$CODE"
