# SPDX-License-Identifier: Apache-2.0
# say.sh is sourced. Its steps print each command with its output, and are counted.
passed=0
failed=0
out= # of the last command that was shown

# step TITLE FUNCTION runs the function; the step passes if the function returns.
step() {
	local start=$SECONDS rc
	printf '\n== %s\n' "$1"
	( set -e; $2 )
	rc=$?
	if [ $rc = 0 ]; then
		passed=$((passed + 1))
		printf '== ok: %s, %d s\n' "$1" $((SECONDS - start))
	else
		failed=$((failed + 1))
		printf '== FAILED: %s\n' "$1"
	fi
}

fail() {
	printf '   FAILED: %s\n' "$*"
	exit 1
}

shown() { [ -z "$1" ] || printf '%s\n' "$1" | sed 's/^/     /'; }

# expect STATUS COMMAND... shows and runs the command, whose exit status has to be STATUS.
expect() {
	local wanted=$1 rc=0 limited=
	shift
	printf '   $ %s\n' "$*"
	[ "$(type -t "$1")" = function ] || limited="timeout 120"
	out=$($limited "$@" 2>&1) || rc=$?
	shown "$out"
	[ "$rc" = "$wanted" ] || fail "exit status $rc, not $wanted"
}

run() { expect 0 "$@"; }

# Runs a line of shell, for commands with a redirection or a pipe.
line() {
	local rc=0
	printf '   $ %s\n' "$1"
	out=$(timeout 60 bash -c "set -o pipefail; $1" 2>&1) || rc=$?
	shown "$out"
	[ $rc = 0 ] || fail "exit status $rc, not 0"
}

# as USER COMMAND... runs the command with that user's groups, in the user's home directory.
as() {
	local user=$1
	shift
	(cd "/home/$user" && exec timeout --foreground 60 setpriv --reuid "$user" --regid "$user" --init-groups -- "$@")
}
alice() { as alice "$@"; }
bob() { as bob "$@"; }

# says TEXT... checks that the last command's output contains each text; is TEXT checks that it equals it.
says() {
	for text; do
		case $out in
		*"$text"*) ;;
		*) fail "the answer does not say: $text" ;;
		esac
	done
}
is() { [ "$out" = "$1" ] || fail "'$out', not '$1'"; }

# until_true SECONDS WHAT COMMAND...
until_true() {
	local seconds=$1 what=$2 end
	end=$((SECONDS + seconds))
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -le $end ] || fail "not within $seconds s: $what"
		sleep 0.05
	done
}

of_unit() { systemctl show --value --property "$2" "$1"; }
main_pid() { of_unit "${1:-tmad.service}" MainPID; }
has_other_pid() { local pid; pid=$(main_pid) && [ "$pid" != 0 ] && [ "$pid" != "$1" ]; }

# ---- Load ---------------------------------------------------------------------------------------------
callers=
start_callers() {
	callers=
	rm -rf /tmp/callers
	mkdir /tmp/callers
	for i in 1 2 3; do
		setpriv --reuid alice --regid alice --init-groups -- caller >/tmp/callers/$i 2>&1 &
		callers="$callers $!"
	done
	until_true 5 "three clients are connected" three_connected
	echo "   three clients call all the time: caller &"
}
three_connected() { [ "$(for pid in $callers; do ls -l /proc/$pid/fd; done | grep -c memfd)" -ge 6 ]; }

# Each program has to have gone on as if nothing had happened.
stop_callers() {
	local rc=0
	kill $callers
	for pid in $callers; do
		wait "$pid" || rc=1
	done
	echo "   each of the three, in the end:"
	shown "$(cat /tmp/callers/*)"
	[ $rc = 0 ] || fail "a call failed, a result was wrong or a connection was refused"
	[ "$(grep -c ' calls, 0 failed, 0 wrong, .* 0 refused$' /tmp/callers/* | grep -c ':1$')" = 3 ] || fail "not three of them"
}
