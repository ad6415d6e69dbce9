#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# A separate repository, with a series for a tree of four files. The guest runs $1, with the path of its
# image, a copy of kernel/core.c, in $image.
prepare() {
	work=$BUILD/linux-6.1.9-1 top=$T/top/scripts
	rm -rf "$T/top" "$work"
	fake_top
	fake_builds
	series=$T/top/patches/linux-6.1 expect=$T/top/patches/expect/linux-6.1 mutants=$T/top/patches/mutants
	fake_series "$series"
	mkdir -p "$expect"
	sed -i '1i Tests: t.b in the selftests.\n\n---' "$series/0001-one.patch"
	sed -i '1i Tests: t.* in the selftests.\n\n---' "$series/0002-two.patch"
	printf 't.b\nt.c\nt.full # preempt=full\noops.d\n' >"$expect/stock-fails"
	export FAKE_GUEST='up; while [ $# -gt 0 ]; do [ "$1" != -kernel ] || image=$2; [ "$1" != -append ] || append=$2; shift; done
results() {
	local name number=0 code=0
	local -A of=([+]=0 [-]=0 [=]=0)
	printf "TAP version 13\n1..%s\n" $# >>"$output"
	for name; do
		of[${name:0:1}]=$((of[${name:0:1}] + 1))
		number=$((number + 1))
		case $name in
		-*) echo "# ${name#-}: expected 1 hit, got 0 (t.cc:1)" && echo "not ok $number ${name#-}" && code=1 ;;
		+*) echo "ok $number ${name#+}" ;;
		=*) echo "ok $number ${name#=} # SKIP" ;;
		esac
	done >>"$output"
	echo "# Totals: pass:${of[+]} fail:${of[-]} xfail:0 xpass:0 skip:${of[=]} error:0" >>"$output"
	echo "exit $code" >"$verdict"
}
'"$1"
}

# tap_is LINE...: the output has exactly these lines of TAP
tap_is() {
	diff <(printf '%s\n' "$@") <(grep -E '^(ok|not ok|[0-9]+\.\.)' <<<"$output")
}

@test "prefixes: each patch must fix the tests that it names" {
	prepare 'grep -q line30_two $image && results +t.a +t.b +t.c +t.full || results +t.a +t.b -t.c -t.full'
	run -0 "$top/prove/prefixes"
	tap_is 1..2 "ok 1 prefix 0001-one.patch: fixes 1 tests, 2 still fail" "ok 2 prefix 0002-two.patch: fixes 2 tests, 0 still fail"
}

@test "prefixes: a new failure, a claimed test that fails, and a lost guest fail" {
	prepare 'grep -q line30_two $image && results -t.a +t.b +t.c +t.full || results +t.a +t.b -t.c -t.full'
	run -1 "$top/prove/prefixes"
	tap_is 1..2 "ok 1 prefix 0001-one.patch: fixes 1 tests, 2 still fail" \
		"not ok 2 prefix 0002-two.patch: fails what passed before: t.a"
	prepare 'grep -q line30_two $image && results +t.a +t.b -t.c +t.full || results +t.a +t.b -t.c -t.full'
	run "$top/prove/prefixes"
	tap_is 1..2 "ok 1 prefix 0001-one.patch: fixes 1 tests, 2 still fail" \
		"not ok 2 prefix 0002-two.patch: fails tests that its patches name: t.c"
	prepare 'grep -q line30_two $image && results +t.a =t.b +t.c +t.full || results +t.a +t.b -t.c -t.full'
	run -1 "$top/prove/prefixes"
	[[ $output == *"not ok 2 prefix 0002-two.patch: skips tests that its patches name: t.b"* ]]
	printf '# reasons\nt.b  # a reason\n' >"$expect/skips"
	run -0 "$top/prove/prefixes"
	prepare 'exit'
	run -1 "$top/prove/prefixes"
	[[ $output == *"not ok 1 prefix 0001-one.patch: boot ended with 11: boot: lost: "* ]]
}

@test "prefixes: an unchanged kernel is not booted, but must pass the tests that its patches name" {
	prepare 'echo booted >>"'"$T"'/boots"; grep -q line30_two $image && results +t.a +t.b -t.d || results +t.a +t.b -t.d'
	for n in 15 35; do
		printf -- "Tests: t.d in the selftests.\n\n---\n--- a/include/core.h\n+++ b/include/core.h\n@@ -$n +$n @@\n-int head$n;\n+int other$n;\n" \
			>"$series/00$n-other.patch"
		echo "00$n-other.patch" >>"$series/series"
	done
	sed -i '1i Tests: t.d in the selftests.\n\n---' "$series/0002-two.patch"
	echo t.d >>"$expect/stock-fails"
	run -1 "$top/prove/prefixes"
	tap_is 1..4 "ok 1 prefix 0001-one.patch: fixes 3 tests, 1 still fail" "ok 2 prefix 0002-two.patch: fixes 0 tests, 1 still fail" \
		"ok 3 prefix 0015-other.patch: the same kernel" "not ok 4 prefix 0035-other.patch: fails tests that its patches name: t.d"
	[ "$(wc -l <"$T/boots")" -eq 2 ]
}

@test "prefixes: a patch that does not apply and a tree that does not build are errors" {
	prepare 'results +t.a'
	sed -i 's/^-int line10;/-int line11;/' "$T/top/patches/linux-6.1/0001-one.patch"
	run -1 "$top/prove/prefixes"
	[[ ${lines[-1]} == "prefixes: 0001-one.patch: apply: 0001-one.patch does not apply "* ]]
	prepare 'results +t.a'
	FAKE_ERROR=broken run -1 "$top/prove/prefixes"
	[[ ${lines[-1]} == "prefixes: 0001-one.patch: does not build; the log is $BUILD/"* ]]
}

@test "soak: each boot must have the same results, and some tests fail only with one preemption mode" {
	prepare '[[ $image == */patched/* ]] && results +t.a +t.b +t.c +t.full =t.skip ||
		if [[ $append == *preempt=full* ]]; then results +t.a -t.b -t.c -t.full =t.skip; else results +t.a -t.b -t.c +t.full =t.skip; fi'
	for kernel in stock patched; do
		mkdir -p "$work/$kernel/obj/arch/x86/boot" "$work/selftests"
		touch "$work/$kernel/obj/arch/x86/boot/bzImage"
	done
	TOP=$T/top applied "$work/patched"
	command_is true ''
	cp "$T/bin/true" "$work/selftests/perf_bpf_filter"
	run -0 "$top/prove/soak" 6.1 19
	[[ $output == "1..19"$'\n'"ok 1 soak: patched, 1 CPUs, preempt=none"$'\n'"ok 2 soak: stock, 1 CPUs, preempt=none"$'\n'"ok 3 soak: patched, 2 CPUs"* ]]
	[[ $output == *"ok 14 soak: stock, 1 CPUs, preempt=full"* ]]
	[[ $output == *"ok 19 soak: patched, 1 CPUs, preempt=none, cold"* ]]
	grep -q "fault_around_bytes.*drop_caches" "$work/soak/command"
	FAKE_GUEST='up; printf "TAP version 13\n1..5\nok 1 t.a\nBail out! fork: EAGAIN\n" >>"$output"; echo "exit 1" >"$verdict"' run -1 "$top/prove/soak" 6.1 1
	[[ $output == *"not ok 1 soak: patched, 1 CPUs, preempt=none: not KTAP: Bail out! fork: EAGAIN"* ]]
	export FAKE_GUEST=${FAKE_GUEST/+t.a +t.b/+t.a -t.b}
	run -1 "$top/prove/soak" 6.1 2
	[[ $output == *"not ok 1 soak: patched, 1 CPUs, preempt=none: other tests failed: "*t.b* ]]
	for boots in 0 x -1; do
		run "$top/prove/soak" 6.1 $boots
		one_line "soak: N must be a number of at least 1, not '$boots'"
	done
}

@test "mutants: a mutant that its tests kill, one that survives, one that crashes the kernel, one without fields" {
	prepare 'grep -q line39_broken $image || exit
		case $(cat "${verdict%/*}/command") in *oops*) say "perf_bpf_filter: test oops.d"; say "Kernel panic - not syncing: Fatal exception" ;; *t.b*) results -t.a -t.b ;; *t.c*) results +t.c =t.d ;; esac'
	mkdir -p "$mutants/linux-7.3"
	for mutant in "killed:Fails: t.a t.b" "survives:Fails: t.c" "dies:Fails: oops.*" "says-nothing:" $'elsewhere:Arch: arm64\nFails: t.a'; do
		mutant "$mutants/linux-6.1/${mutant%%:*}.patch" "${mutant#*:}"
	done
	run -1 "$top/prove/mutants" 6.1 killed survives dies
	tap_is 1..3 "ok 1 mutant killed: killed by 2 tests: t.a t.b" "not ok 2 mutant survives: survived t.c" \
		"ok 3 mutant dies: killed, the kernel crashed: oops.*"
	run "$top/prove/mutants" 6.1 elsewhere
	one_line "mutants: elsewhere is for ARCH=arm64"
	run "$top/prove/mutants" 6.1 none
	one_line "mutants: no such mutant: none (see *"

	# A mutant in another base's folder can be named.
	fake_series "$T/top/patches/linux-7.3"
	sed 's/broken;/broken; /' "$mutants/linux-6.1/killed.patch" >"$mutants/linux-7.3/newer.patch"
	run "$top/prove/mutants" 6.1 newer killed
	tap_is 1..2 "ok 1 mutant newer: killed by 2 tests: t.a t.b" "ok 2 mutant killed: killed by 2 tests: t.a t.b"
	rm -r "$T/top/patches/linux-7.3"
	run -1 "$top/prove/mutants" 6.1 says-nothing
	[[ ${lines[-1]} == "mutants: "*"says-nothing.patch: says nothing that must happen (Fails:, Runs:, Costs:, Dies:, Stops: or Hits:)" ]]
	rm "$mutants/linux-6.1/says-nothing.patch" "$mutants/linux-6.1/survives.patch"
	run "$top/prove/mutants" 6.1
	tap_is 1..2 "ok 1 mutant dies: killed, the kernel crashed: oops.*" "ok 2 mutant killed: killed by 2 tests: t.a t.b"
}

@test "mutants: a mutant of selftests/ runs from a patched copy, on the kernel with the series" {
	prepare 'grep -q line30_two $image && [[ $image == */patched/* ]] || exit
		read -r suite tests <"${verdict%/*}/command"
		[[ $suite == */mutants/tool/selftests/perf_bpf_filter ]] && [ "$tests" = t.a ] || exit
		grep -qx "broken();" "${verdict%/*}/source/selftests/gdb/main.cc" && results -t.a'
	mkdir -p "$mutants/linux-6.1" "$T/top/selftests/gdb"
	echo 'works();' >"$T/top/selftests/gdb/main.cc"
	printf '%s\n' "C1: broken." "" "Fails: t.a" "" "--- a/selftests/gdb/main.cc" "+++ b/selftests/gdb/main.cc" \
		"@@ -1 +1 @@" "-works();" "+broken();" >"$mutants/linux-6.1/tool.patch"
	run -0 "$top/prove/mutants" 6.1
	tap_is 1..1 "ok 1 mutant tool: killed by 1 tests: t.a"
	[ "$(cat "$T/top/selftests/gdb/main.cc")" = "works();" ]
	[ ! -e "$work/mutants/tool/selftests" ]
	echo 'other();' >"$T/top/selftests/gdb/main.cc"
	run -1 "$top/prove/mutants" 6.1 tool
	[[ $output == *"mutants: tool: "*FAILED* ]]
}

@test "mutants: those of the live patch are killed by their tests, a crash, the build, or what hits says" {
	prepare 'case $(cat "${verdict%/*}/command") in
		*/tests/*) results -t.a ;; */passes/*) results +t.a ;; */turns/*hits) echo "2 hits are missing" >>"$output"; echo exit 1 >"$verdict" ;;
		*/crash/* | */elsewhere/*) say "perf_bpf_filter: test t.a"; say "Kernel panic - not syncing: Fatal exception" ;; *) results -t.b ;; esac'
	local live=$mutants/live/linux-6.1 made=$BUILD/livepatch/6.1.0-9-amd64
	mkdir -p "$live" "$made/module"
	echo '#define BUILD "Debian 6.1.9-1 of today"' >"$made/module/build.h"
	touch "$made/perf_bpf_filter_livepatch.ko"
	# shellcheck disable=SC2016
	command_is g++ 'while [ "$1" != -o ]; do shift; done; touch "$2"'
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' 'mkdir -p "$BUILD/livepatch/$1-mutant" && cd "$_" && touch perf_bpf_filter_livepatch.ko' \
		'! grep -q "^Stops: " "$MUTANT" || { echo "cut: an address is left" && exit 1; }' >"$T/top/scripts/livepatch/build"
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/bash' 'kernel=$1 out=$2; shift 2; options=(); while [ "$1" != -- ]; do options+=("$1"); shift; done' \
		'exec "${0%-image}" --accel tcg --out "$out" "${options[@]}" "$BUILD/$kernel" "$@"' >"$T/top/scripts/boot-image"
	touch "$BUILD/6.1.0-9-amd64"
	for mutant in "tests:Fails: t.a" "crash:Dies: t.a" "stops:Stops: an address is left" "turns:Hits: hits are missing"; do
		printf '%s\n' "It is broken." "" "${mutant#*:}" >"$live/${mutant%%:*}.patch"
	done
	unset VERSION
	run -0 "$top/prove/mutants" 6.1.0-9-amd64
	tap_is 1..4 "ok 1 mutant crash: killed, the kernel crashed: t.a" "ok 2 mutant stops: killed, the build says 'an address is left'" \
		"ok 3 mutant tests: killed by 1 tests: t.a" "ok 4 mutant turns: killed, hits says 'hits are missing'"
	grep -q '"name": "6.1.0-9-amd64", "figure": 4' "$BUILD/runs/make-mutants-6.1.0-9-amd64.json"

	# A mutant is not killed by a failure other than the one that it names.
	for mutant in "passes:Fails: t.a" "elsewhere:Dies: t.b" "fails:Dies: t.b" "reason:Stops: another address" "says:Hits: hits are missing"; do
		printf '%s\n' "It is broken." "" "${mutant#*:}" >"$live/${mutant%%:*}.patch"
	done
	run -1 "$top/prove/mutants" 6.1.0-9-amd64 passes elsewhere fails reason says
	tap_is 1..5 "not ok 1 mutant passes: survived t.a" "not ok 2 mutant elsewhere: survived t.b, the kernel crashed in t.a" \
		"not ok 3 mutant fails: survived t.b" "not ok 4 mutant reason: survived, the build does not say 'another address'" \
		"not ok 5 mutant says: survived, hits does not say 'hits are missing'"
}

@test "try: rebuilds what has changed, and runs the tests that match" {
	prepare 'cat "${verdict%/*}/command" >>"$output"; grep -q line30_two $image && results +t.a'
	fake_suite "$BUILD/linux-6.1.9-1/selftests/perf_bpf_filter" t.a=C1 other=C1
	run -2 "$top/try" 6.1 't.*' nosuch
	[ "${lines[-1]}" = "try: no test matches nosuch; $BUILD/linux-6.1.9-1/selftests/perf_bpf_filter --list shows all of them" ]
	[[ $output != *bzImage* ]]
	run -0 "$top/try" 6.1 't.*' other
	[[ $output == *"2 patches applied to "*"bzImage: Linux 6.1.9"*"perf_bpf_filter 't.*' other"*"ok 1 t.a"* ]]
	run -0 "$top/try" 6.1 't.*'
	[[ $output != *applied* && $output != *bzImage* && $output == *"ok 1 t.a"* ]]
	sed -i 's/line30_two/line30_new/' "$series/0002-two.patch"
	run -11 "$top/try" 6.1 't.*'
	[[ $output == *"2 patches applied to "*"bzImage: Linux 6.1.9"* ]]
	touch -d '1 minute' "$T/top/Kconfig.fragment"
	run "$top/try" 6.1 't.*'
	[[ $output == *"bzImage: Linux 6.1.9"* ]]
}
