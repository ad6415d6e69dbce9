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

stock_tree() { lab fetch "$1"; }        # BASE: the tree that $KSRC or $VERSION tells, or the newest
kernel_version() { lab version "$1"; }  # TREE: prints "6.1.192" from its Makefile, fails if there is none
series_patches() { lab patches "$1"; }  # SERIES_DIR: file names, in the order of the series
series_files() { lab files "$1"; }      # SERIES_DIR: the files of the kernel tree that it touches
checkpatch() { lab checkpatch "$@"; }   # TREE PATCH [TYPES]: checkpatch --strict without TYPES
build_selftests() { lab selftests "$@"; } # TREE FOLDER: for that kernel, into FOLDER/selftests
archive() { lab archive "$1"; }           # LABEL: where apt gets Debian's archive of that label from, or nothing
other_debian() { lab other-debian "$1"; } # KERNEL: the Debian, as 13, that it is for, if it is not the machine's
release() { lab release "$1"; }           # VERSION: trixie for 13
apt_lines() { lab apt-lines "$1"; }       # RELEASE: for sources.list, with its backports and its security updates

# progress LABEL LOG PATTERN UNIT COMMAND...: runs COMMAND with its output in LOG. Meanwhile a terminal
# shows how many lines of LOG match PATTERN, and the time. Returns COMMAND's exit code.
progress() { lab progress "$@"; }

# mails_by_author SERIES_DIR [PATH...]: git commits as the author of that series, at the time when it, or
# PATH here, was last changed: the same mails each time, until what is in them changes.
mails_by_author() {
	local series=$1 author
	shift
	author=$(sed -n '1s/^From: //p' "$series/$(series_patches "$series" | head -n 1)")
	export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
	GIT_AUTHOR_DATE=$(git -C "$TOP" log -1 --format=%aI -- "$series" "$@")
	GIT_AUTHOR_NAME=${author% <*}
	GIT_AUTHOR_EMAIL=$(sed 's/.*<\(.*\)>/\1/' <<<"$author")
	export GIT_AUTHOR_DATE GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL
	export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME \
		GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
}

# dated [PATCH]: as a mail of that time
dated() {
	sed "1a Date: $GIT_AUTHOR_DATE" "$@"
}

# touched_tree FOLDER STOCK FILE...: a git tree whose branch "base" has these files of the kernel, as far
# as it has them: git am looks at no others.
touched_tree() {
	local tree=$1 stock=$2 file
	shift 2
	git init -q -b base "$tree"
	for file; do
		[ ! -e "$stock/$file" ] || install -D -m 644 "$stock/$file" "$tree/$file"
	done
	git -C "$tree" add -A
	git -C "$tree" commit -q -m "Linux $(kernel_version "$stock")"
}

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
