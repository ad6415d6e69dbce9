# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the verbs in shell need: one-line errors, the places things are in, and the readers of lab/.

set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$(realpath -m "${BUILD:-$TOP/build}")
export BUILD

# One line on stderr: what is wrong, where, what to do. Exit code 1; 2 for bad usage.
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

usage() {
	printf 'usage: %s\n' "$*" >&2
	exit 2
}

# lab QUESTION [ARGUMENT...]: what the readers say, see lab/__main__.py
lab() {
	/usr/bin/python3 -B "$TOP/scripts/lab" "$0" "$@"
}

# lock: one at a time in the build folder, until this process and all that it started have ended.
lock() {
	mkdir -p "$BUILD" 2>/dev/null && { exec 9>>"$BUILD/.lock"; } 2>/dev/null || die "cannot write to $BUILD"
	lab lock 9 $$
}

kernel_version() { lab version "$1"; }  # TREE: prints "6.1.192" from its Makefile, fails if there is none
series_patches() { lab patches "$1"; }  # SERIES_DIR: file names, in the order of the series
series_files() { lab files "$1"; }      # SERIES_DIR: the files of the kernel tree that it touches
build_selftests() { lab selftests "$@"; } # TREE FOLDER: for that kernel, into FOLDER/selftests

# progress LABEL LOG PATTERN UNIT COMMAND...: runs COMMAND with its output in LOG. Meanwhile a terminal
# shows how many lines of LOG match PATTERN, and the time. Returns COMMAND's exit code.
progress() { lab progress "$@"; }
