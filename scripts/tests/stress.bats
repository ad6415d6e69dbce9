#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

setup() {
	set_up
	verified_kernels
}

# guest_says TEXT EXIT: sets the output and the exit code of the guest
guest_says() {
	export FAKE_GUEST='up; printf "TAP version 13\n'"$1"'" >>"$output"; echo "exit '"$2"'" >"$verdict"'
}

GOOD='ok 1 0x7 calls\n# round: hits 1000 accepted 60 rejected 940 misses 0 samples 60 lost 0 extra 0\n1..1\n'
BAD='not ok 1 0x7 calls\n# calls: expected 60 samples, got 58\n# to repeat: perf_bpf_stress --seed 0x7\n# round: hits 1000 accepted 60 samples 58 lost 2 extra 0\n1..1\n'

@test "stress: a bad number of minutes or option is refused" {
	for minutes in 0 -1 1.5 ten 12345; do
		run "$SCRIPTS/prove/stress" 6.1 "$minutes"
		one_line "stress: MINUTES must be a number of at least 1, not '$minutes'"
	done
	for arguments in "6.1 2 3" "--check" "--check 6.1 2"; do
		# shellcheck disable=SC2086
		run -2 "$SCRIPTS/prove/stress" $arguments
		one_line "usage: stress *"
	done
}

@test "stress: if no kernel is built, fails and downloads nothing" {
	rm -r "$BUILD"
	command_is apt-get 'echo "$*" >>"'"$T"'/downloads"; exit 1'
	run "$SCRIPTS/prove/stress" 6.1
	one_line "stress: no kernel is built for 6.1; run make verify BASE=6.1 first"
	[ ! -e "$T/downloads" ]
}

@test "stress: runs with 2 and 4 CPUs, half of the time each, and prints the sums" {
	guest_says "$GOOD" 0
	run -0 "$SCRIPTS/prove/stress" 6.1 3
	[[ $output =~ "hits tried"\ +1000\ +1000\ +2000 ]]
	[[ $output =~ "samples delivered"\ +60\ +60\ +120 ]]
	[[ $output =~ seconds\ +90\ +90\ +180 ]]
	python3 -c "import json; s = json.load(open('$BUILD/stress-6.1.json'))
assert s['ok'] and s['kernel'] == 'linux-6.1.9-1' and [r['cpus'] for r in s['runs']] == [2, 4]
assert [(r['hits'], r['lost'], r['exit']) for r in s['runs']] == [(1000, 0, 0)] * 2"
}

@test "stress: a lost hit fails the run, is reported, and is counted in the sum" {
	guest_says "$BAD" 1
	run -1 "$SCRIPTS/prove/stress" 6.1 1
	[[ $output == *"expected 60 samples, got 58"*"to repeat: perf_bpf_stress --seed 0x7"* ]]
	[[ $output =~ lost\ +2\ +2\ +4 ]]
	[[ $output =~ "rounds that differed"\ +1\ +1\ +2 ]]
	python3 -c "import json; assert not json.load(open('$BUILD/stress-6.1.json'))['ok']"
}

@test "stress: a kernel splat fails the run, even if every round passes" {
	guest_says "$GOOD" 0
	FAKE_GUEST="say 'WARNING: CPU: 0 PID: 1 at kernel/events/core.c:1'; $FAKE_GUEST"
	run -1 "$SCRIPTS/prove/stress" 6.1 1
	[[ $output == *"kernel splat"* ]]
	[[ $output =~ "kernel splats"\ +1\ +1\ +2 ]]
}

@test "stress: a guest that dies or prints nothing fails the run" {
	export FAKE_GUEST='up; printf "ok 1 0x7 calls\n# round: hits 7 lost 0\n" >>"$output"'
	run -1 "$SCRIPTS/prove/stress" 6.1 1
	[[ $output == *"boot: lost"* ]]
	[[ $output =~ "hits tried"\ +7\ +7\ +14 ]]
	guest_says "" 0
	run -1 "$SCRIPTS/prove/stress" 6.1 1
}

@test "stress: a wrong exit code fails the run; an old result is removed" {
	guest_says "$BAD" 0
	run -1 "$SCRIPTS/prove/stress" 6.1 1
	[ -f "$BUILD/stress-6.1.json" ]
	export FAKE_GUEST='exit 0'
	command_is make 'exit 2'
	run "$SCRIPTS/prove/stress" 6.1 1
	[ ! -e "$BUILD/stress-6.1.json" ]
}

@test "stress --check: one test, which fails if a round fails, or without hits" {
	guest_says "$GOOD" 0
	run -0 "$SCRIPTS/prove/stress" --check 6.1
	[ "${lines[0]}" = "ok 1 stress 6.1: 1000 hits, 60 of them accepted, all as expected" ]
	[ "${lines[1]}" = "1..1" ]
	guest_says "$BAD" 1
	run -1 "$SCRIPTS/prove/stress" --check 6.1
	[[ $output == *"not ok 1 stress 6.1: boot ended with 1, 1 of 1 rounds failed; see $BUILD/linux-6.1.9-1/stress-2/output.log"* ]]
	guest_says "" 0
	run -1 "$SCRIPTS/prove/stress" --check 6.1
}

@test "stress: a kernel with an earlier series is refused" {
	echo earlier >"$BUILD/linux-6.1.9-1/patched/.series-applied"
	run "$SCRIPTS/prove/stress" 6.1
	one_line "stress: $BUILD/linux-6.1.9-1/patched was built from an earlier series; run make verify BASE=6.1 first"
}

@test "stress: reports that the selftests do not build" {
	command_is make 'exit 2'
	run "$SCRIPTS/prove/stress" 6.1
	one_line "stress: the selftests do not build; *selftests.log"
}
