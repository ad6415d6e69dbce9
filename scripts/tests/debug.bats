#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

@test "debug: an unknown configuration, and one for other bases, are refused" {
	run "$SCRIPTS/prove/debug" 6.1 kmsan
	one_line "debug: no such configuration: kmsan (available: *kasan*lockdep*)"
	run "$SCRIPTS/prove/debug" 5.10 rt
	one_line "debug: rt is for *, not for 5.10"
	[ ! -e "$BUILD" ]
}

@test "debug: each configuration has a Console: or Runs: field" {
	for file in "$SCRIPTS"/configs/*; do
		case ${file##*/} in kabi | kunit) continue ;; esac
		grep -qE '^# (Console|Runs): .' "$file"
		grep -q '^CONFIG_' "$file"
	done
}

@test "debug: a configuration may have other bases and more boot options on one architecture" {
	fields() { cd "$T/top/scripts" && ARCH=$1 python3 -B -c "from lab import config; c = config.Config('some'); print(*c.bases, *c.boot)"; }
	mkdir -p "$T/top/scripts/configs"
	cp -r "$SCRIPTS/lab" "$SCRIPTS/arch" "$T/top/scripts"
	printf '# Bases: 5.10 6.1\n# Bases arm64: 6.1\n# Boot: --timeout 9\n# Boot x86: --append no5lvl\n' >"$T/top/scripts/configs/some"
	[ "$(fields x86)" = "5.10 6.1 --timeout 9 --append no5lvl" ]
	[ "$(fields arm64)" = "6.1 --timeout 9" ]
}

@test "debug: a configuration adds to Kconfig.fragment and overrides it" {
	fragment() { cd "$1" && python3 -B -c "from lab import config; print(config.fragment(config.Config('$2')))"; }
	fragment "$SCRIPTS" kasan >"$T/fragment"
	grep -qx CONFIG_PERF_EVENTS=y "$T/fragment"
	grep -qx CONFIG_KASAN=y "$T/fragment"
	mkdir -p "$T/top/scripts/configs"
	cp -r "$SCRIPTS/lab" "$SCRIPTS/arch" "$T/top/scripts"
	printf 'CONFIG_A=y\nCONFIG_AB=y # from 6.1\n' >"$T/top/Kconfig.fragment"
	printf '# a comment\nCONFIG_A=n\n' >"$T/top/scripts/configs/some"
	[ "$(fragment "$T/top/scripts" some | grep CONFIG | xargs)" = "CONFIG_AB=y # from 6.1 CONFIG_A=n" ]
}

# debugs -STATUS GUEST [ARGUMENT...]: runs debug, or $verb, with a series for a tree of four files, and a fake QEMU
# that runs GUEST
debugs() {
	export FAKE_GUEST=$2
	fake_top
	fake_builds
	rm "$T/top/scripts/configs"/*
	printf '%b# Console: sanitizer on\nCONFIG_KASAN=y\n' "${apart-}" >"$T/top/scripts/configs/kasan"
	printf '# Console: tasks\n# Bases: 7.3\nCONFIG_RT=y\n' >"$T/top/scripts/configs/rt"
	[ -d "$T/top/patches" ] || fake_series "$T/top/patches/linux-6.1"
	fake_suite "$BUILD/linux-6.1.9-1/selftests/perf_bpf_filter" a.b=C1 oops.c=C8 races.d=C6
	mutant "$T/top/patches/mutants/linux-6.1/sleeps.patch" $'Splat: kasan: KASAN: use-after-free in b\nRuns: b c'
	run "$1" "$T/top/scripts/prove/${verb:-debug}" "${@:3}"
}
TESTS='up; say "sanitizer on"; printf "ok 1 a\n# round: hits 42 lost 0\nok 2 b # SKIP\n" >>"$output"'

@test "debug: passes if suite and stress pass without a splat" {
	debugs -0 "$TESTS"'; echo "exit 0" >"$verdict"'
	grep -qx "ok 1 debug: 6.1 patched, kasan, suite: 1 passed, 0 failed, 1 skipped, 0 splats" <<<"$output"
	grep -qx "ok 2 debug: 6.1 patched, kasan, stress: 1 passed, 0 failed, 1 skipped, 0 splats" <<<"$output"
	grep -qE "^# 6.1 +patched +kasan +suite +1 +0 +1 +42 +0 +[0-9]+$" <<<"$output"
	[[ $output != *rt* ]]
	grep -qx CONFIG_KASAN=y "$BUILD/linux-6.1.9-1/patched/obj-kasan/.config"
}

@test "debug: fails if the test in Runs: is skipped or missing" {
	apart='# Runs: b\n' debugs -1 "$TESTS"'; echo "exit 0" >"$verdict"'
	[[ $output == *"not ok 1 debug: 6.1 patched, kasan, suite: 1 passed, 0 failed, 1 skipped, 0 splats: b did not run; see "* ]]
	apart='# Runs: gone\n' debugs -1 "$TESTS"'; echo "exit 0" >"$verdict"'
	[[ $output == *"0 splats: gone did not run; see "* ]]
}

@test "debug: a splat fails the patched kernel; on stock it is only reported" {
	splat='; say "BUG: KASAN: use-after-free in b"; echo "exit 0" >"$verdict"'
	debugs -1 "$TESTS$splat"
	[[ $output == *"not ok 1 debug: 6.1 patched, kasan, suite: 1 passed, 0 failed, 1 skipped, 1 splats: boot: kernel splat: BUG: KASAN: use-after-free in b; see "* ]]
	debugs -0 "$TESTS$splat" --stock 6.1 kasan
	[[ $output == *"ok 1 debug: 6.1 stock, kasan, suite: 1 passed, 0 failed, 1 skipped, 1 splats # boot: kernel splat"* ]]
	# Tests that crash stock run in a separate boot.
	[[ $output == *"1..3"$'\n'* && $output == *"ok 2 debug: 6.1 stock, kasan, oops: "* ]]
	[ "$(cd "$BUILD/linux-6.1.9-1/debug" && grep -lF oops.c stock-*/command)" = stock-kasan-oops/command ]
}

@test "debug: tests in Apart:, which turn the debug tool off, have a separate boot" {
	apart='# Apart: ^races\.\n' debugs -0 "$TESTS"'; echo "exit 0" >"$verdict"'
	[[ $output == *"1..3"$'\n'*"ok 2 debug: 6.1 patched, kasan, apart: "*"ok 3 debug: 6.1 patched, kasan, stress: "* ]]
	[ "$(cd "$BUILD/linux-6.1.9-1/debug" && grep -lF races.d patched-*/command)" = patched-kasan-apart/command ]
	grep -qF 'a.b oops.c' "$BUILD/linux-6.1.9-1/debug/patched-kasan-suite/command"
}

@test "debug: a failed test, a lost guest and a kernel without the debug tool fail" {
	debugs -1 "$TESTS"'; echo "not ok 3 c" >>"$output"; echo "exit 1" >"$verdict"'
	[[ $output == *"1 failed, 1 skipped, 0 splats: not ok 3 c; see "* ]]
	debugs -1 "$TESTS"'; echo "exit 127" >"$verdict"'
	debugs -1 "$TESTS"
	[[ $output == *"not ok 1 debug: "*": boot: lost: "* ]]
	debugs -1 "${TESTS/sanitizer/nothing}"'; echo "exit 0" >"$verdict"'
	[[ $output == *"not ok 1 debug: "*": the kernel does not print 'sanitizer on'; see "* ]]
}

@test "mutants: a mutant with Splat: is killed by a matching splat" {
	verb=mutants debugs -0 "$TESTS"'; say "[ 4.2] BUG: KASAN: use-after-free in b"; echo "exit 0" >"$verdict"'
	[[ $output == *"ok 1 mutant sleeps: kasan says BUG: KASAN: use-after-free in b"* ]]
	grep -qx CONFIG_KASAN=y "$BUILD/linux-6.1.9-1/mutant/obj-kasan/.config"
	verb=mutants debugs -1 "$TESTS"'; say "BUG: KASAN: use-after-free in c"; echo "exit 0" >"$verdict"'
	[[ $output == *"not ok 1 mutant sleeps: kasan prints no 'KASAN: use-after-free in b' in b c"* ]]
}
