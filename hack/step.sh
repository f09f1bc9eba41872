# shellcheck shell=bash
# Notes what the steps of a run cost, for the tables of hack/timing. Sourced by scripts.

# timed TITLE COMMAND... runs a command, and if ATOLL_TIMING names a file of notes, appends the command's wall and processor time.
timed() {
	local title=$1 code=0 cost wall user system
	shift
	[[ -n ${ATOLL_TIMING:-} ]] || { "$@"; return; }
	cost=$(mktemp)
	{ TIMEFORMAT='%R %U %S'; time "$@" 2>&3; } 3>&2 2>"$cost" || code=$?
	read -r wall user system < <(tail -n 1 "$cost")
	rm -f "$cost"
	awk -v title="$title" -v wall="$wall" -v user="$user" -v kernel="$system" \
		'BEGIN {printf "step\t%s\t%.3f\t%.3f\n", title, wall, user + kernel}' >>"$ATOLL_TIMING"
	return "$code"
}
