# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Runs the tools of scripts/livepatch on a kernel of two files in $T/source: core.c and other.c.
# bats sets status, output and lines, and the tests use these.
# shellcheck disable=SC2154

tools=(symbols cut seal)

setup_file() {
	TOOLS=$(mktemp -d)
	export TOOLS
	cd "$BATS_TEST_DIRNAME/../livepatch" || return
	for tool in "${tools[@]}"; do
		g++ -std=gnu++20 -o "$TOOLS/$tool" "$tool"*.cc kernel.cc elf.cc -lelf
	done
}

teardown_file() {
	rm -rf "$TOOLS"
}

FLAGS=(-O2 -mcmodel=kernel -fno-pic -fno-pie -pg -mfentry -mrecord-mcount -fcf-protection=none
	-fno-asynchronous-unwind-tables -mno-sse)
SPLIT=(-falign-functions=64 -ffunction-sections -fdata-sections)

# compile DIR FLAG...: compiles both files
compile() {
	local dir=$T/$1 file
	shift
	mkdir -p "$dir"
	for file in core other; do
		gcc "${FLAGS[@]}" "$@" -c "$T/source/$file.c" -o "$dir/$file.o"
	done
}

# Compiles the kernel's source with the other options.
compile_stock() {
	compile aligned "${SPLIT[0]}"
	compile stock "${SPLIT[@]}"
}

# Builds the kernel, its symbols and exports, and the objects of its unchanged source.
kernel() {
	[ -d "$T/source" ] || sources "$T/source"
	compile plain
	echo 'int __fentry__ = 1;' | gcc -c -x c - -o "$T/fentry.o"
	ld -e 0 -Ttext=0xffffffff81000000 --defsym=__start_mcount_loc=__start___mcount_loc \
		--defsym=__stop_mcount_loc=__stop___mcount_loc -o "$T/vmlinux" "$T"/plain/*.o "$T/fentry.o"
	nm -n --defined-only "$T/vmlinux" >"$T/symbols"
	printf '0x1\t%s\tvmlinux\tEXPORT_SYMBOL\t\n' __fentry__ >"$T/symvers"
	compile_stock
	printf 'object core.o\nobject other.o\n' >"$T/plan"
	mkdir -p "$T/out"
}

# cut FLAG...: compiles the patched source with these flags, and cuts out the difference
cut() {
	compile patched "${SPLIT[@]}" "$@"
	run "$TOOLS/cut" "$T/vmlinux" "$T/symbols" "$T/symvers" "$T/plan" "$T/plain" "$T/aligned" "$T/stock" "$T/patched" "$T/out"
}

relocations() {
	readelf -rW "$T/out/$1"
}

# stops MESSAGE: cut failed with this message only
stops() {
	[ "$status" -eq 1 ]
	[ "$output" = "cut: $1" ]
}

# replaced FUNCTIONS: cut succeeded, and replaces these functions, of each name the first one, or with ",N" the Nth
replaced() {
	[ "$status" -eq 0 ]
	[ "$(sed 's/REPLACE(\(.*\), \(.*\))/\1,\2/; s/,1$//' "$T/out/functions.h" | paste -sd ' ')" = "$1" ]
}
