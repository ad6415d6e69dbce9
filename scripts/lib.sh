# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Functions for the verbs in shell: one-line errors, paths, and the readers of lab/.

set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$(realpath -m "${BUILD:-$TOP/build}")
export BUILD

# Prints one line on stderr: what is wrong, where, what to do. Exit code 1; 2 for bad usage. The message may
# end with text from a server, so control characters are replaced.
die() {
	local LC_ALL=C message=$*
	printf '%s: %s\n' "${0##*/}" "${message//[[:cntrl:]]/ }" >&2
	exit 1
}

# later MESSAGE: like die, for a temporary error, such as a network that is down. For dkms/make, which sets
# FROM_DKMS, the exit code is 75, and the build is repeated at the next boot. FROM_DKMS also means that apt
# may be in the middle of an installation, so nothing is installed, and apt's lists are not updated.
later() {
	local code=1
	[ -z "${FROM_DKMS:-}" ] || code=75
	(die "$@") || exit $code
}

usage() {
	printf 'usage: %s\n' "$*" >&2
	exit 2
}

# These paths are used on make's command line and in shell scripts for guests.
[[ $TOP$BUILD != *[[:space:]:\$\`\"\'\\\;\&\|\<\>\(\)[:cntrl:]]* ]] ||
	die "$TOP or $BUILD: a path with spaces, colons, quotes, backslashes, parentheses or any of \$ \` ; & | < > cannot be passed to make; move it, or set BUILD=/path"

# The help text of a verb is the comment at its top.
case "${1:-}" in
-h | --help)
	sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
	exit
	;;
--version) exec "$TOP/scripts/ship/version" ;;
esac

# lab QUESTION [ARGUMENT...]: asks the readers, see lab/__main__.py
lab() {
	/usr/bin/python3 -B "$TOP/scripts/lab" "$0" "$@"
}

# lock: locks the build folder until this process and all its children have exited.
lock() {
	mkdir -p "$BUILD" 2>/dev/null && { exec 9>>"$BUILD/.lock"; } 2>/dev/null || die "cannot write to $BUILD"
	lab lock 9 $$
}

other_debian() { lab other-debian "$1"; } # KERNEL: the Debian that it is for, such as 13, if not the machine's
release() { lab release "$1"; }           # VERSION: trixie for 13
apt_lines() { lab apt-lines "$1"; }       # RELEASE: lines of sources.list, with backports and security updates

# private_apt RELEASE WHAT: sets apt=(...), options that make apt read only RELEASE. WHAT names what comes from
# it, for messages.
private_apt() {
	local conf
	conf=$(lab private-apt "$1" "$2") || exit
	apt=(-c "$conf")
}

# apt_download FOLDER PACKAGE...: downloads to FOLDER/debs with the options apt=(...); apt's output is in
# FOLDER/apt.log.
apt_download() {
	lab apt-download "$1" "${apt[@]}" "${@:2}"
}
