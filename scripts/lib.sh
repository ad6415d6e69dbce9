# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the verbs in shell need: one-line errors, the places things are in, and the readers of lab/.

set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$(realpath -m "${BUILD:-$TOP/build}")
export BUILD

# One line on stderr: what is wrong, where, what to do. Exit code 1; 2 for bad usage. It may end with what
# a server sent: a terminal gets no control characters of it.
die() {
	local LC_ALL=C message=$*
	printf '%s: %s\n' "${0##*/}" "${message//[[:cntrl:]]/ }" >&2
	exit 1
}

# later MESSAGE: die, for a reason that may pass, such as a network that is down. For dkms/make, which sets FROM_DKMS,
# the exit code is 75, and the build is repeated at the next boot. FROM_DKMS also means that apt may be installing
# packages: then nothing is installed, and apt's lists are not updated.
later() {
	local code=1
	[ -z "${FROM_DKMS:-}" ] || code=75
	(die "$@") || exit $code
}

usage() {
	printf 'usage: %s\n' "$*" >&2
	exit 2
}

# They stand on command lines of make and in programs for guests.
[[ $TOP$BUILD != *[\$\`\"\'\\\;\&\|\<\>\(\)[:cntrl:]]* ]] ||
	die "$TOP or $BUILD: a path with quotes, backslashes, parentheses or any of \$ \` ; & | < > cannot be passed to make; move it, or set BUILD=/path"

# --help of every verb is the comment at its top.
case "${1:-}" in
-h | --help)
	sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
	exit
	;;
--version) exec "$TOP/scripts/version" ;;
esac

# lab QUESTION [ARGUMENT...]: what the readers say, see lab/__main__.py
lab() {
	/usr/bin/python3 -B "$TOP/scripts/lab" "$0" "$@"
}

# lock: one at a time in the build folder, until this process and all that it started have ended.
lock() {
	mkdir -p "$BUILD" 2>/dev/null && { exec 9>>"$BUILD/.lock"; } 2>/dev/null || die "cannot write to $BUILD"
	lab lock 9 $$
}

other_debian() { lab other-debian "$1"; } # KERNEL: the Debian, as 13, that it is for, if it is not the machine's
release() { lab release "$1"; }           # VERSION: trixie for 13
apt_lines() { lab apt-lines "$1"; }       # RELEASE: for sources.list, with its backports and its security updates

# private_apt SUITE WHAT: apt=(...) are options for apt that make it read that suite instead of what the
# machine has configured; WHAT is wanted from it.
private_apt() {
	local conf
	conf=$(lab private-apt "$1" "$2") || exit
	apt=(-c "$conf")
}

# apt_download FOLDER PACKAGE...: to FOLDER/debs, by the options apt=(...); what apt says is in FOLDER/apt.log.
apt_download() {
	lab apt-download "$1" "${apt[@]}" "${@:2}"
}
