#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh PYTHON WHEEL BUILD: what a user of the wheel does: installs it in an empty venv, moves buffers without NumPy,
# and with NumPy runs the README's example and compares results with NumPy's own. BUILD has the tmad; NumPy is
# downloaded.
set -u
python=$1
wheel=$2
build=$3
source=$(dirname "$0")/../..

scratch=$(mktemp -d "${TMPDIR:-/tmp}/tmad-wheel-XXXXXX") || exit 99
tmad_pid=
finish() {
	[ -z "$tmad_pid" ] || kill "$tmad_pid" 2>/dev/null
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

passed=0
failed=0
# step NAME COMMAND...: with its output when it failed.
step() {
	name=$1
	shift
	if "$@" >"$scratch/log" 2>&1; then
		passed=$((passed + 1))
		echo "ok - $name"
	else
		failed=$((failed + 1))
		echo "not ok - $name"
		cat "$scratch/log"
	fi
}

in_venv() { (cd "$scratch" && env -u PYTHONPATH TMAD_SOCKET="$scratch/s" "$scratch/venv/bin/python" "$@"); }

without_numpy() {
	in_venv -c '
import importlib.util, tmaclient
assert importlib.util.find_spec("numpy") is None
with tmaclient.connect() as c:
    assert c.pad(b"abc", 2, mode="reflect").tobytes() == b"cbabcba"
    rows = memoryview(bytes(range(12))).cast("B", (3, 4))
    turned = c.transpose(rows)
    assert turned.shape == (4, 3) and turned.tobytes() == bytes(4 * j + i for i in range(4) for j in range(3))
    shared = c.empty((2, 3), "int16")
    assert c.copy(shared).nbytes == 12'
}

example() {
	awk '/^<!-- end of example -->/ { on = 0 } on && !/^```/ { print } /^<!-- example.py -->/ { on = 1 }' \
		"$source/README.md" >"$scratch/example.py"
	in_venv example.py && test -s "$scratch/example.py"
}

like_numpy() {
	in_venv -c '
import itertools, numpy as np, tmaclient as tma
c = tma.connect()
for dtype in ("uint8", "int16", "float32", "complex128"):
    x = np.arange(5 * 6 * 7).reshape(5, 6, 7).astype(dtype)
    shared = c.empty(x.shape, dtype)
    shared[...] = x
    for source, axes in itertools.product((x, shared, x[::-1, ::2]), itertools.permutations(range(3))):
        np.testing.assert_array_equal(c.transpose(source, axes), np.transpose(source, axes))
    for mode in ("constant", "edge", "reflect", "symmetric", "wrap"):
        for width in (1, (2, 0), ((0, 1), (2, 3), (1, 1))):
            np.testing.assert_array_equal(c.pad(x, width, mode), np.pad(x, width, mode))
c.close()'
}

"$build/tmad" --config= --engine cpu --socket "$scratch/s" 2>"$scratch/tmad.log" &
tmad_pid=$!
step "a venv" "$python" -m venv "$scratch/venv"
step "the wheel installs, without a network" in_venv -m pip install --quiet --no-index "$(realpath "$wheel")"
step "it is all there is" sh -c "test \"\$('$scratch/venv/bin/pip' list --format=freeze | grep -vcE '^(pip|setuptools|wheel)=')\" = 1"
step "buffers are moved without NumPy" without_numpy
step "NumPy installs" in_venv -m pip install --quiet numpy
step "the README's example runs" example
step "results are NumPy's" like_numpy
printf '\n%d passed, %d failed, 0 skipped\n' "$passed" "$failed"
[ "$failed" = 0 ]
