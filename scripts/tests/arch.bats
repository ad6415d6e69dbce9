#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# lists STOCK ARM64 [ARCH]: prints the tests that ARCH must fail; the contents of stock-fails are STOCK, and
# those of stock-fails.arm64 are ARM64
lists() {
	mkdir -p "$T/top/patches/"{,expect/}linux-6.1 "$BUILD"
	cp -r "$SCRIPTS" "$T/top"
	echo '# BASE linux-6.1 6.1.9-1' >"$T/top/patches/linux-6.1/series"
	tr ' ' '\n' <<<"$1" >"$T/top/patches/expect/linux-6.1/stock-fails"
	tr '|' '\n' <<<"$2" >"$T/top/patches/expect/linux-6.1/stock-fails.arm64"
	ARCH=${3-arm64} run /usr/bin/python3 -B -c 'import sys
sys.path[0] = sys.argv[1]
sys.argv = ["list"]
from lab import base
print(" ".join(sorted(base.find("6.1").stock_fails())))' "$T/top/scripts"
}

@test "arch: arm64 must fail the tests of stock-fails, without its 'not' lines, and its own" {
	lists "a.one b.two oops.x" "c.three|not b.two"
	[ "$output" = "a.one c.three oops.x" ]
	lists "a.one b.two b.three oops.x" "c.three|not b.*"
	[ "$output" = "a.one c.three oops.x" ]
	lists "a.one b.two oops.x" "c.three|not b.two" x86
	[ "$output" = "a.one b.two oops.x" ]
}

@test "arch: a test in a 'not' line must be in stock-fails" {
	lists "a.one" "not b.two"
	one_line "list: *stock-fails.arm64: not in stock-fails: b.two"
}

@test "arch: an unknown architecture, base or option is refused" {
	for verb in verify try prove/{bench,debug,faults,fuzz,generate-mutants,kabi,mutants,peers,prefixes,readme-example,series-check,soak,stress} ship/{dist,labs}; do
		ARCH=armm64 run "$SCRIPTS/$verb" 6.1
		one_line "${verb#*/}: no such architecture: armm64 (available: arm64 x86)"
		run "$SCRIPTS/$verb" 4.19
		one_line "${verb#*/}: no such base: 4.19 (available: *6.1*)"
		run -2 "$SCRIPTS/$verb" --frob
		one_line "usage: ${verb#*/} *"
	done
	[ ! -e "$BUILD" ]
}

@test "arch: a command for x86 only refuses another architecture before it starts" {
	for verb in prove/{kabi,faults,peers} ship/labs; do
		ARCH=arm64 run "$SCRIPTS/$verb" 6.1
		one_line "${verb#*/}: ARCH=arm64: this command supports only x86; leave out ARCH"
	done
}

@test "arch: an arm64 guest has its own QEMU, machine and console, busybox as shell, and perf's keys held" {
	fake_qemu
	mkdir -p "$T/obj/arch/arm64/boot"
	install -D /dev/null "$T/obj/perf_bpf_pmu/perf_bpf_pmu.ko"
	mv "$T/bin/qemu-system-x86_64" "$T/bin/qemu-system-aarch64"
	echo kernel >"$T/obj/arch/arm64/boot/Image"
	export FAKE_GUEST='up; echo "$@" >"$T/command"; echo "exit 0" >"$verdict"' T
	ARCH=arm64 run -0 "$SCRIPTS/boot" --accel tcg --timeout 5 --out "$T/out" "$T/obj/arch/arm64/boot/Image" -- true
	grep -q -- "-machine virt,.*console=ttyAMA0.* init=$BUILD/sysroot-arm64/bin/busybox .*-- sh $SCRIPTS/guest-init" "$T/command"
	grep -q "guest.module=$T/obj/perf_bpf_pmu/perf_bpf_pmu.ko,hold=1 " "$T/command"
}

@test "library: importing it changes neither the environment nor stdout" {
	cd "$SCRIPTS"
	BUILD="$T/a b" ARCH='' python3 -Bc 'import os, sys
before = dict(os.environ)
from lab import apt, base, config, kcidb, livepatch, mail, results, suite, tree, variants, verdict
assert os.environ == before and not sys.stdout.line_buffering' | cat
	[ "${PIPESTATUS[0]}" -eq 0 ]
}

@test "sysroot: reports packages that the archive does not have, and leaves nothing" {
	command_is apt-get '[[ $* == *update* ]] || { echo "E: Unable to locate package nothing"; exit 100; }'
	run -1 "$SCRIPTS/sysroot" arm64 nothing
	[ "${lines[-1]}" = "sysroot: cannot download them: E: Unable to locate package nothing" ]
	[ ! -e "$BUILD/sysroot-arm64" ]
	run -1 env ARCH=arm64 /usr/bin/python3 -B -c 'import sys; sys.path[0] = sys.argv[1]; from lab.arch import ARCH; ARCH.prepare()' "$SCRIPTS"
	[[ $output != *Traceback* ]]
}
