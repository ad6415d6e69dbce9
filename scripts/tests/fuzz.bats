#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

setup() {
	set_up
	verified_kernels
	export ACCEL=tcg
}

@test "fuzz: bad arguments are refused" {
	for calls in 0 -5 many 1e6 9999999999; do
		run "$SCRIPTS/prove/fuzz" 6.1 $calls
		one_line "fuzz: CALLS must be a number of at least 1, not '$calls'"
	done
	for seed in x -1 1.5; do
		SEED=$seed run "$SCRIPTS/prove/fuzz" 6.1 10
		one_line "fuzz: SEED must be a number, not '$seed'"
	done
	for arguments in "6.1 10 more" "--check" "--check 6.1 10"; do
		# shellcheck disable=SC2086
		run -2 "$SCRIPTS/prove/fuzz" $arguments
		one_line "usage: fuzz *"
	done
}

@test "fuzz: a missing kernel image is refused" {
	IMAGE=$T/none run "$SCRIPTS/prove/fuzz" 6.1 10
	one_line "fuzz: no such kernel image: $T/none; *"
	rm "$BUILD/linux-6.1.9-1/patched/obj/arch/x86/boot/bzImage"
	run "$SCRIPTS/prove/fuzz" 6.1 10
	one_line "fuzz: no such kernel image: $BUILD/*; run make verify BASE=6.1*"
}

@test "fuzz: passes if nothing is found" {
	export FAKE_GUEST='up; printf "# 5 calls, 0 s\ncalls 10\nfound: 0\n" >>"$output"; echo "exit 0" >"$verdict"'
	run -0 "$SCRIPTS/prove/fuzz" 6.1 10
	[ "$output" = "calls 10
found: 0" ]
}

@test "fuzz: a leak, a splat, a lost guest, and a guest that prints nothing fail" {
	export FAKE_GUEST='up; printf "leak: BPF programs: 2, before 0\nfound: 1\n" >>"$output"; echo "exit 1" >"$verdict"'
	run -1 "$SCRIPTS/prove/fuzz" 6.1 10
	[[ $output == *"leak: BPF programs"* ]]
	export FAKE_GUEST='up; echo "# 500 calls, 1 s" >>"$output"; say "perf_bpf_filter: test fuzz:seed=42"; say "BUG: KASAN: use-after-free"'
	run -1 "$SCRIPTS/prove/fuzz" 6.1 10
	[[ $output == *"fuzz:seed=42"*"KASAN"* ]]
	[[ $output == *"fuzz: the guest ended with 13 after 500 calls, 1 s;"* ]]
	export FAKE_GUEST='up; printf "found: 0\n" >>"$output"'
	run -1 "$SCRIPTS/prove/fuzz" 6.1 10
	[[ $output == *"the guest ended with 11"* ]]
	export FAKE_GUEST='up; echo "exit 0" >"$verdict"'
	run -1 "$SCRIPTS/prove/fuzz" 6.1 10
	[[ $output == *"fuzz: the fuzzer did not print its last line"* ]]
}

@test "fuzz: a splat fails even if the fuzzer found nothing" {
	export FAKE_GUEST='up; say "BUG: KASAN: x"; echo "found: 0" >>"$output"; echo "exit 0" >"$verdict"'
	run -1 "$SCRIPTS/prove/fuzz" 6.1 10
}

@test "fuzz --check: one test, which fails if something is found, or if nothing is printed" {
	export FAKE_GUEST='up; printf "calls 5000\nfound: 0\n" >>"$output"; echo "exit 0" >"$verdict"'
	run -0 "$SCRIPTS/prove/fuzz" --check 6.1
	[ "$output" = "# calls 5000
# found: 0
ok 1 fuzz 6.1: 5000 calls, nothing found
1..1" ]
	export FAKE_GUEST='up; printf "leak: events: 2, before 0\nfound: 1\n" >>"$output"; echo "exit 1" >"$verdict"'
	run -1 "$SCRIPTS/prove/fuzz" --check 6.1
	[[ $output == *"not ok 1 fuzz 6.1: boot ended with 1: leak: events: 2, before 0; see $BUILD/"* ]]
	export FAKE_GUEST='up; echo "exit 0" >"$verdict"'
	run -1 "$SCRIPTS/prove/fuzz" --check 6.1
	[[ $output == *"not ok 1 fuzz 6.1: boot ended with 0: no final message;"* ]]
}
