# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What every script here needs: one-line errors and the places things are in.

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

# kernel_version TREE: prints "6.1.192" from the tree's Makefile, fails if there is none.
kernel_version() {
	awk -F ' *= *' '$1 == "VERSION" { v = $2 } $1 == "PATCHLEVEL" { p = $2 }
		$1 == "SUBLEVEL" { s = $2; exit }
		END { if (v == "" || p == "" || s == "") exit 1; print v "." p "." s }' \
		"$1/Makefile" 2>/dev/null
}

# series_patches SERIES_DIR: prints the file names in the order of the series.
series_patches() {
	sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$1/series"
}

# series_kernels SERIES_DIR: prints what a series is for, a kernel a line: "6.1 6.1.192-2", and the
# suite of the archive that has it, if that is one that the machine need not have configured. First
# what it was made on, "# BASE linux-6.1 ..." in the first line; then what else it was tried on,
# "# ALSO linux-7.2 ...".
series_kernels() {
	sed -n -e '1s/^# BASE linux-//p' -e 's/^# ALSO linux-//p' "$1/series"
}

# series_is_for SERIES_DIR VERSION: as 6.1.192
series_is_for() {
	series_kernels "$1" | grep -q "^${2%.*} "
}

# series_files SERIES_DIR: prints the files of the kernel tree that the series touches.
series_files() {
	local patch
	series_patches "$1" | while read -r patch; do
		sed -n 's,^+++ b/\([^[:space:]]*\).*,\1,p' "$1/$patch"
	done | sort -u
}

# stock_fails SERIES_DIR [PREEMPT]: the tests that must fail on the stock kernel, sorted, but for
# those that it does not survive. What fails with full preemption alone is told with that.
stock_fails() {
	sed -e '/^#/d' -e '/^oops\./d' -e "/# preempt=/{/# preempt=${2:-full}$/!d}" -e 's/ *#.*//' -e '/^$/d' \
		"$1/stock-fails" | sort
}

# progress LABEL LOG PATTERN UNIT COMMAND...: runs COMMAND with its output in LOG. Meanwhile a
# terminal shows one live line: how many lines of LOG match PATTERN, and the time. Prints
# nothing in the end; returns COMMAND's exit code.
progress() {
	local label=$1 log=$2 pattern=$3 unit=$4 start=$SECONDS code=0 pid
	shift 4
	# What a script puts into the background is deaf to Ctrl-C, else.
	(trap - INT QUIT && "$@") >"$log" 2>&1 </dev/null &
	pid=$!
	if [ -t 2 ]; then
		while kill -0 "$pid" 2>/dev/null; do
			printf '\r%s: %d %s, %d s ' "$label" "$(grep -cE "$pattern" "$log")" "$unit" \
				$((SECONDS - start)) >&2
			sleep 0.5
		done
		printf '\r\033[K' >&2
	fi
	wait "$pid" || code=$?
	return "$code"
}

# lock: one at a time in the build folder, until this process and all that it started have ended.
lock() {
	mkdir -p "$BUILD" 2>/dev/null && { exec 9>>"$BUILD/.lock"; } 2>/dev/null || die "cannot write to $BUILD"
	if ! flock -n 9; then
		# What a killed run had started ends by itself: a guest in its time, a make when all is built.
		! kill -0 "$(cat "$BUILD/.lock")" 2>/dev/null ||
			die "another run (process $(cat "$BUILD/.lock")) is using $BUILD; wait for it, or give this one its own BUILD=/path"
		echo "waiting for the rest of a killed run to end" >&2
		flock -w 600 9 || die "something still holds $BUILD/.lock; see fuser $BUILD/.lock"
	fi
	echo $$ >"$BUILD/.lock"
}

# making DIR: before a make that writes to DIR. make goes by times alone: what a killed one left
# half-written it would take for finished, and what is dated in the future, since the clock was set
# back, for newer than any change. So that goes first. made DIR: the make came to its end.
making() {
	mkdir -p "$1" 2>/dev/null && { exec 8>>"$1/.making"; } 2>/dev/null || die "cannot write to $1"
	if ! flock -n 8; then
		echo "waiting for the rest of a killed run to end" >&2
		flock -w 600 8 || die "something still holds $1/.making; see fuser $1/.making"
	fi
	touch "$1/.now"
	if [ -n "$(find "$1" -newer "$1/.now" -print -quit)" ]; then
		echo "the clock was set back: making all of $1 anew" >&2
		find "$1" -mindepth 1 ! -name .making -delete
	elif [ -s "$1/.making" ]; then
		find "$1" -type f -newer "$1/.making" ! -name .making -delete
	fi
	echo $$ >"$1/.making"
}

made() {
	: >"$1/.making"
	exec 8>&-
}

# build_selftests TREE WORK: for that kernel, into WORK/selftests.
build_selftests() {
	local log=$2/selftests.log
	making "$2/selftests"
	make -C "$TOP/selftests" KSRC="$1" OUT="$2/selftests" >"$log" 2>&1 || {
		tail -n 15 "$log" >&2
		die "the selftests do not build; the whole log is $log"
	}
	made "$2/selftests"
}

# subject BASE: what a verdict on BASE is about, as a number: the series, the tests, the configuration.
subject() {
	(cd "$TOP/patches/linux-$1" &&
		cat series stock-fails ./*.patch ../../Kconfig.fragment ../../selftests/*/*.{cc,c,h}) |
		sha256sum | cut -c 1-16
}

# debug_fragment CONFIG: prints Kconfig.fragment with what scripts/debug.CONFIG adds to it, or sets
# in another way.
debug_fragment() {
	local symbols
	symbols=$(sed -n 's/^\(CONFIG_[A-Z0-9_]*\)=.*/\1/p' "$TOP/scripts/debug.$1" | paste -sd '|')
	grep -vE "^($symbols)=" "$TOP/Kconfig.fragment"
	cat "$TOP/scripts/debug.$1"
}

# debug_boot ARGUMENT...: scripts/boot, for such a kernel. It takes more memory, and many times as
# long. On QEMU's older machine, pc, the kernel can give up what tells the interrupts of PCI: that
# is a loop in the bytecode of ACPI, which has 30 s. On q35 it is a table.
debug_boot() {
	"$TOP/scripts/boot" --accel "${ACCEL:-auto}" --machine q35 --memory 2G --timeout 3600 \
		--append preempt=full --append kmemleak.verbose=1 "$@"
}
