#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benchmark of the service as a neighbour, on the stand-in driver: it measures every row, ends with its neighbour,
# and fails when the service does.
LD_LIBRARY_PATH=$TEST_BUILDDIR/tests/softgpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
room=$(mktemp -d) || exit 1
tmad=
compute=$room/compute # a copy, because other tests run that program, too
cp "$TEST_BUILDDIR/tests/gpu/bench/compute" "$compute" || exit 1
trap 'kill $tmad 2>/dev/null; wait; rm -rf "$room"' EXIT

# serve NAME [VARIABLE=VALUE...] starts a service and returns once it listens.
serve() {
	name=$1
	shift
	env "$@" "$TEST_TMAD" --config= --engine=cuda --socket="$room/$name" >"$room/tmad" 2>&1 &
	tmad=$!
	for _ in $(seq 200); do
		[ ! -S "$room/$name" ] || break
		sleep 0.1
	done
}

count=0
# ok NAME reports the result of the command before it.
ok() {
	[ $? = 0 ] && verdict=ok || verdict='not ok'
	count=$((count + 1))
	echo "$verdict $count - $1"
}

bench() {
	timeout 120 "$TEST_BUILDDIR/tests/gpu/bench/bench_neighbour" --tiny --compute "$compute" "$@" \
		>"$room/log" 2>&1
}

serve first
bench "$room/first"
ok "it measures"
sed 's/^/# /' "$room/log" "$room/tmad"
while read -r row; do
	grep -qF "$row" "$room/log"
	ok "$row"
done <<-'END'
	back to back
	one at a time: alone p50
	the long ones, 2 under way
	CPU of the service in
	the compute: 2 multiprocessors (100 % asked for)
	| ping |
	| 64 KiB transpose, launch and wait |
	| 64 KiB transpose by a call |
	| 64 KiB transpose by a ring |
	| 1 MiB transpose by a call |
	64 KiB alone, p50: by a call
	| 256 MiB transposes on the device, 4 under way |
	| gather of 8192 x 16 KiB, host to device |
	| scatter of 8192 x 16 KiB, device to host |
	| 1 GiB in order, host to device |
	| 1 GiB in order, device to host |
	| 1 GiB transposed, host to host, one way |
	| hand-over by a stream's words, after 0.2 ms |
	| hand-over by a stream's words, after 20 ms |
	| hand-over by the host's words, after 0.2 ms |
END
! grep -qE '(nan|inf|\| 0\.00 \|)' "$room/log"
ok "everything was measured"
bench --keep-free 1 "$room/first" && grep -qF '(50 % asked for)' "$room/log"
ok "a multiprocessor is left free"
! bench --compute "$room/nothing" "$room/first" && grep -q "$room/nothing" "$room/log"
ok "it fails without the process that computes"
kill $tmad
wait $tmad

serve second SOFTGPU_FAULT=40
! bench "$room/second" && grep -q 'the device must be reopened' "$room/log"
ok "it fails when the service loses its device"
kill $tmad
wait $tmad

mkdir "$room/bin"
ln -s "$TEST_TMAD" "$room/bin/tmad"
printf '#!/bin/sh\nexec "%s/tests/gpu/bench/bench_neighbour" --compute "%s" "$@"\n' "$TEST_BUILDDIR" \
	"$compute" >"$room/bin/bench_neighbour"
cat >"$room/mps" <<-END
	#!/bin/sh
	if [ "\${1-}" = -d ]; then
		sleep 300 </dev/null >/dev/null 2>&1 &
		echo \$! >"\$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
		echo \$! >"$room/mps.pid"
	else
		cat >"$room/mps.told"
	fi
END
chmod +x "$room/mps" "$room/bin/bench_neighbour"
# script [VARIABLE=VALUE...]
script() {
	env "$@" timeout 120 sh "$TEST_SRCDIR/tests/gpu/neighbour.sh" "$room/bin" --tiny >"$room/log" 2>&1
}

script MPS_CONTROL="$room/mps" && [ "$(grep -c '^| ping' "$room/log")" = 2 ]
ok "the script measures without and with MPS"
sed 's/^/# /' "$room/log"
grep -q '^quit$' "$room/mps.told" && ! kill -0 "$(cat "$room/mps.pid")" 2>/dev/null
ok "it ends the MPS that it started"
script MPS_CONTROL=/bin/false && grep -q '^with MPS: not measured' "$room/log"
ok "it says that it has not measured with MPS"
! script MPS_CONTROL=/bin/false SOFTGPU_FAULT=40
ok "it fails when the service does"
! ls -l /proc/[0-9]*/exe 2>/dev/null | grep -F "$compute"
ok "no process that computes is left"
echo "1..$count"
