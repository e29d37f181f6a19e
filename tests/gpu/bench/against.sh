#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the kernels of this bundle with those of another one, made of other sources, on the same GPU and the same rows.
# The two take turns, and OLD is also compared with itself, which shows how much of a difference is noise.
#
#   against.sh OLD [LOGS]     OLD is the other bundle's folder; LOGS is ./gpu-logs by default
#
# The environment may set ROWS, the "SEED N" of random rows (7 40), and SECONDS_EACH, the most seconds that a run may
# take (60).
set -u
new=$(cd "$(dirname "$0")" && pwd) || exit 1
old=${1:?usage: against.sh OLD [LOGS]} logs=${2:-gpu-logs}
mkdir -p "$logs" || exit 1

# measured NAME BUNDLE ARGUMENT... runs bench_gpu of the bundle and writes NAME.json.
measured() {
	name=$1 bundle=$2
	shift 2
	LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout "${SECONDS_EACH:-60}" \
		"$bundle/bin/bench_gpu" --no-tune --json "$@" >"$logs/$name.json" || echo "$name: exit $?" >&2
}

# change WHAT AFTER BEFORE prints how the rows of AFTER differ from those of BEFORE, under the title WHAT.
change() {
	printf '\n==== %s\n' "$1"
	LD_LIBRARY_PATH=$new/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
		"$new/bin/bench_gpu" --load "$logs/$2.json" --compare "$logs/$3.json"
}

for turn in 1 2; do
	measured "random-old-$turn" "$old" --random ${ROWS:-7 40}
	measured "random-new-$turn" "$new" --random ${ROWS:-7 40}
done
measured chosen-old "$old"
measured chosen-new "$new"
change "random rows, old against old" random-old-2 random-old-1
change "random rows, new against old, first turn" random-new-1 random-old-1
change "random rows, new against old, second turn" random-new-2 random-old-2
change "chosen rows, new against old" chosen-new chosen-old
