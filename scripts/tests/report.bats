#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

RED='TAP version 13\n1..2\nok 1 a\n# b: expected 0 signals, got 5\nnot ok 2 b\n'
GREEN='TAP version 13\n1..2\nok 1 a\nok 2 b\n'

# A stock kernel that fails b, and a patched one that passes.
setup() {
	set_up
	guest_ran stock failed "$RED"
	guest_ran patched passed "$GREEN"
}

# reports -STATUS ARGUMENT...: judges the guests by the lists in $T
reports() {
	run "$1" "$SCRIPTS/report" "$T/stock" "$T/patched" --expect "$T/stock-fails" "${@:2}"
}

# judged [-STATUS]
judged() {
	printf '# what fails on stock\nb # preempt=full\na # preempt=rt\n' >"$T/stock-fails"
	reports "${1:--1}" --json "$T/results.json" --tap "$T/results.tap"
}

# wrong PATTERN: the verdict is red in all three places, and a complaint matches
wrong() {
	judged
	[[ $output == *WRONG*$1* ]] && grep -q '^not ok' "$T/results.tap" && grep -q '"verdict": "fail"' "$T/results.json"
}

@test "report: stock fails as listed, patched passes" {
	judged -0
	[[ $output == *"tests failed"*"1, as listed"*0* ]]
	grep -q '"verdict": "pass"' "$T/results.json"
	[ "$(grep -c '^ok' "$T/results.tap")" -eq 4 ]
}

@test "report: a test that requires Debian's configuration" {
	guest_ran patched passed 'TAP version 13\n1..2\nok 1 a\n# b: no BTF\nok 2 b # SKIP\n'
	echo "b # shipped" >"$T/stock-fails"
	reports -0 --shipped
	reports -1
	[[ $output == *"stock: b: fails, but is not listed as failing"*"patched: b: is skipped, but stock ran it"* ||
		$output == *"patched: b: is skipped, but stock ran it"*"stock: b: fails, but is not listed as failing"* ]]
	echo b >"$T/stock-fails"
	reports -1 --shipped
	[[ $output == *"patched: b: is skipped, but stock ran it"* ]]
}

@test "report: records the duration of each test, and prints the slowest" {
	guest_ran patched passed 'TAP version 13\n1..2\n# a took 1.500 s\nok 1 a\n# b took 12.250 s\nok 2 b\n'
	judged -0
	[[ $output == *"slow   b 12 s, a 2 s"* ]]
	[ "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["patched"]["took"])' "$T/results.json")" = "{'a': 1.5, 'b': 12.25}" ]
}

@test "report: records how often both sides of each race met, and prints the races that met least often" {
	guest_ran patched passed 'TAP version 13\n1..2\n# a met 1200 times, floor 400\nok 1 a\n# b met 25 times, floor 20\nok 2 b\n'
	judged -0
	[[ $output == *"races  met least often: b 25 times, a 1200 times"* ]]
	[ "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["patched"]["met"])' "$T/results.json")" = "{'a': 1200, 'b': 25}" ]
	guest_ran patched passed "$GREEN"
	judged -0
	[[ $output != *"races  met"* ]]
}

@test "report: a message of a test is no number of meetings" {
	guest_ran patched passed 'TAP version 13\n1..2\n# a: a met 5 times, floor 1\nok 1 a\n# b met -5 times, floor 1\nok 2 b\n'
	judged -0
	[[ $output != *"races  met"* ]]
}

@test "report: a test that may fail on stock" {
	echo "b # may" >"$T/stock-fails"
	for stock in "failed $RED" "passed $GREEN"; do
		guest_ran stock "${stock%% *}" "${stock#* }"
		reports -0
	done
	guest_ran stock passed "$GREEN"
	guest_ran patched failed "$RED"
	reports -1
	[[ $output == *"WRONG  patched: b: "* ]]
}

@test "report: prints plain ASCII if stdout is no terminal" {
	judged -0
	! LC_ALL=C grep -q '[^ -~]' <<<"$output" || false
}

@test "report: a failed test on the patched kernel is wrong" {
	guest_ran patched failed "$RED"
	wrong "patched: b: expected 0 signals, got 5"
}

@test "report: a failed test on stock that is not listed is wrong" {
	guest_ran stock failed 'TAP version 13\n1..2\nnot ok 1 a\nnot ok 2 b\n'
	wrong "stock: a: fails, but is not listed as failing"
}

@test "report: a listed test that passes, is skipped or does not exist is wrong" {
	guest_ran stock passed "$GREEN"
	wrong "stock: b: is listed as failing on stock, but the result is: pass"
	guest_ran stock passed 'TAP version 13\n1..2\nok 1 a\nok 2 b # SKIP\n'
	wrong "stock: b: is listed as failing on stock, but the result is: skip"
	guest_ran stock passed 'TAP version 13\n1..1\nok 1 a\n'
	wrong "stock: b: is listed as failing on stock, but does not exist"
}

@test "report: a list that is not text is judged, without a traceback" {
	printf '\377\376\n' >"$T/binary"
	run -1 "$SCRIPTS/report" "$T/stock" "$T/patched" --expect "$T/binary" --skips "$T/binary"
	[[ $output == *"WRONG  stock: b: "* && $output != *Traceback* ]]
}

@test "report: with --only, the other listed tests need not have run" {
	guest_ran stock passed 'TAP version 13\n1..1\nok 1 a\n'
	guest_ran patched passed 'TAP version 13\n1..1\nok 1 a\n'
	printf 'b\n' >"$T/stock-fails"
	reports -0 --only 'a*'
	reports -1 --only 'a*' --only b
	[[ $output == *"stock: b: is listed as failing on stock, but does not exist"* ]]
}

@test "report: a skip counts as a skip and gives its reason" {
	guest_ran stock failed 'TAP version 13\n1..3\nok 1 a\nnot ok 2 b\n# c: no such thing\nok 3 c # SKIP\n'
	guest_ran patched passed 'TAP version 13\n1..3\nok 1 a\nok 2 b\n# c: no such thing\nok 3 c # SKIP\n'
	judged -0
	[[ $output == *"skip   c: no such thing"* ]]
	[ "$(grep -c '# SKIP' "$T/results.tap")" -eq 2 ]
}

@test "report: KTAP that is cut, doubled, forged, out of order or missing is never green" {
	local ktap
	for ktap in \
		'' \
		'sh: 1: perf_bpf_filter: not found\n' \
		'TAP version 13\n' \
		'TAP version 13\n1..0\n' \
		'TAP version 13\n1..2\nok 1 a\n' \
		'TAP version 13\n1..2\nok 1 a\nok 2' \
		'TAP version 13\n1..2\nok 1 a\nok 2 b\nok 3 c\n' \
		'TAP version 13\n1..2\nok 1 a\nok 1 a\nok 2 b\n' \
		'TAP version 13\n1..2\nok 1 a\nok 2 a\n' \
		'TAP version 13\n1..2\nok 2 b\nok 1 a\n' \
		'TAP version 13\nok 1 a\nok 2 b\n' \
		'TAP version 13\n1..2\nok 1 a\n1..1\n' \
		'TAP version 13\n1..2\nok 1 a\nnot ok 2 b # SKIP\n' \
		'TAP version 13\n1..1\nok 1 a\nTAP version 13\n1..2\nok 1 a\nok 2 b\n' \
		'TAP version 13\n1..2\nok 1 a\nok 2 b\n2 passed, 0 failed\n' \
		'TAP version 13\n1..2\nok 1 a\n\001\002\nok 2 b\n'; do
		guest_ran patched passed "$ktap"
		wrong "patched:"
	done
}

@test "report: an exit code that does not fit the results is wrong" {
	guest_ran patched failed "$GREEN"
	wrong "patched: exit code 1 does not fit the test results"
}

@test "report: a lost, hung, unbooted or splatting guest is wrong, whatever its results are" {
	for outcome in lost hang no-boot; do
		guest_ran patched $outcome "$GREEN"
		wrong "patched: $outcome"
	done
	SPLATS='[{"line": "WARNING: CPU: 1", "test": "a"}]' guest_ran patched splat "$GREEN"
	wrong "patched: splat: WARNING: CPU: 1"
	SPLATS='[{"line": "WARNING: CPU: 1", "test": "a"}]' guest_ran patched passed "$GREEN"
	wrong "patched: passed: WARNING: CPU: 1"
	guest_ran patched passed "$GREEN"
	guest_ran stock lost "$RED"
	wrong "stock: lost"
}

@test "report: a missing output of the probe is wrong" {
	sed -i /effects/d "$T/patched/output.log"
	wrong "patched: perf_bpf_probe gave no result"
}

@test "report: tables of the probe, of skips, of the suite, and of tests that crash the kernel" {
	run -0 "$BATS_TEST_DIRNAME/verdicts.py"
}

@test "report: the rows for stops are printed only if one does not work" {
	judged -0
	[[ $output =~ the\ sigio\ +suppressed\ +suppressed && $output != *"the step"* ]]
	probe_says stock step "does not stop"
	judged
	[[ $output =~ the\ step\ +does\ not\ stop\ +works ]]
}

@test "report: with --suite, all tests of the suite must have run" {
	fake_suite "$T/bin/suite" a=C1 b=C1 c=C1
	echo b >"$T/stock-fails"
	reports -1 --suite "$T/bin/suite"
	[[ $output == *"WRONG  stock: did not run 1 of the suite's 3 tests: c"* ]]
	reports -0 --suite "$T/bin/suite" --only '[ab]'
}

@test "report: --write-skips writes the list of skips, and keeps lines with "may"" {
	guest_ran stock passed "$GREEN"
	guest_ran patched passed 'TAP version 13\n1..2\nok 1 a\n# b: no BTF\nok 2 b # SKIP\n'
	: >"$T/stock-fails"
	printf '# What is skipped.\na # may: one CPU\n' >"$T/skips"
	reports -1 --skips "$T/skips"
	[[ $output == *"WRONG  patched: b: is skipped, but is not listed as skipped: no BTF"* ]]
	reports -0 --skips "$T/skips" --write-skips
	diff <(grep -v '^#' "$T/skips") <(printf 'a # may: one CPU\nb # no BTF\n')
	# Without a list, tests that stock ran must not be skipped.
	reports -1
	[[ $output == *"skip   no list of skips for this kernel"*"WRONG  patched: b: is skipped, but stock ran it"* ]]
}

@test "report: different tests on the two kernels are wrong" {
	guest_ran patched passed 'TAP version 13\n1..3\nok 1 a\nok 2 b\nok 3 c\n'
	wrong "patched: did not run the same tests as stock"
}

@test "report: a folder without the results of a boot is an error" {
	rm -r "$T/patched"
	judged
	one_line "report: $T/patched: *"
	[ ! -e "$T/results.json" ]
}

@test "report: the tests oops.* must crash the stock kernel, in separate guests" {
	guest_ran patched passed 'TAP version 13\n1..4\nok 1 a\nok 2 b\nok 3 oops.exec\nok 4 oops.fork\n'
	SPLATS='[{"line": "Kernel panic - not syncing: Fatal exception", "test": "oops.exec"}]' guest_ran exec splat 'TAP version 13\n1..1\n'
	guest_ran fork failed 'TAP version 13\n1..1\nnot ok 1 oops.fork\n'
	printf '%s\n' b oops.exec 'oops.fork # survives' >"$T/stock-fails"
	reports -0 --oops "$T/exec" --oops "$T/fork" --tap "$T/results.tap" --json "$T/results.json"
	[[ $output == *"tests failed"*"2, as listed"*"tests seen to crash the kernel"*1* ]]
	grep -q '^ok .*stock: oops.exec: crashes the kernel, as listed' "$T/results.tap"
	grep -q '^ok .*stock: oops.fork fails, as listed' "$T/results.tap"
	python3 -c 'import json, sys; found = json.load(open(sys.argv[1])); assert found["deadly"] == ["oops.exec"] and found["stock"]["tests"]["oops.fork"] == "fail"' "$T/results.json"

	# A kernel that prints a splat and continues has not crashed, even if the splat comes during the test.
	SPLATS='[{"line": "WARNING: a", "test": "oops.exec"}]' EXIT=0 guest_ran exec splat 'TAP version 13\n1..1\n'
	reports -1 --oops "$T/exec" --oops "$T/fork"
	[[ $output == *"WRONG  stock: oops.*: the kernel complains during oops.exec, but does not crash: WARNING: a"* ]]
	SPLATS='[{"line": "WARNING: a", "test": "oops.exec"}]' guest_ran exec splat 'TAP version 13\n1..1\nok 1 oops.exec\n'
	reports -1 --oops "$T/exec" --oops "$T/fork"
	[[ $output == *"WRONG  stock: oops.*: the kernel complains during oops.exec, but does not crash: WARNING: a"* ]]

	reports -1 --oops "$T/fork" --tap "$T/results.tap"
	grep -q '^not ok .*oops.exec: is listed as crashing the kernel, but the result is: not run' "$T/results.tap"
}

@test "report: a run with a missing or wrong last line is wrong" {
	for totals in '# Totals: pass:2 fail:0' '# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:0 error:0\n' \
		'# Totals: pass:2 fail:0 xfail:0 xpass:0 skip:0 error:0\n# b: said later\n' \
		'# Totals: pass:2 fail:0 xfail:0 xpass:0 skip:0 error:1\n'; do
		guest_ran patched passed "$GREEN$totals"
		wrong "patched: the totals in the last line do not match the results"
	done
}

@test "report: a form feed or a carriage return in a message does not end a line" {
	for char in '\r' '\f' '\v' '\034' '\0302\0205'; do
		guest_ran patched passed "TAP version 13\n1..2\nok 1 a\n# b: x${char}ok 2 b\n"
		wrong "patched: 2 tests planned, 1 results"
	done
}

@test "report: a suite that was killed is wrong, even if its results look right" {
	guest_ran patched failed "$RED"
	sed -i 's/"exit": 1/"exit": 137/' "$T/stock/boot.json"
	wrong "stock: exit code 137 does not fit the test results"
}

@test "report: the patched kernel must not skip what stock ran, and must run what crashes stock" {
	guest_ran patched passed 'TAP version 13\n1..2\nok 1 a\nok 2 b # SKIP\n'
	wrong "patched: b: is skipped, but stock ran it"

	guest_ran oops splat ''
	printf 'b\noops.fork\n' >"$T/stock-fails"
	for ktap in "$GREEN" 'TAP version 13\n1..3\nok 1 a\nok 2 b\nok 3 oops.fork # SKIP\n'; do
		guest_ran patched passed "$ktap"
		reports -1 --oops "$T/oops"
		[[ $output == *"WRONG  patched: oops.fork: is listed as crashing stock, and was not run here"* ]]
	done
}

@test "report: a test's message is not written as a TAP directive" {
	guest_ran patched failed 'TAP version 13\n1..2\nok 1 a\n# b: broken # TODO\nnot ok 2 b\n'
	wrong "patched: b: broken # TODO"
	! grep -q '#' "$T/results.tap" || false
}

@test "report: an invalid boot.json is an error" {
	for json in '' '{' '[]' '"passed"' '{"exit": 0}'; do
		guest_ran patched passed "$GREEN"
		echo "$json" >"$T/patched/boot.json"
		judged
		one_line "report: $T/patched: *"
		[ ! -e "$T/results.json" ]
	done
}

@test "report: none of 1000 forged and damaged outputs passes" {
	run -0 "$BATS_TEST_DIRNAME/forge.py" 1 1000
}

@test "report: with --left, the patched kernel must fail exactly the listed tests" {
	guest_ran patched failed "$RED"
	echo b >"$T/stock-fails"
	cp "$T/stock-fails" "$T/feature-fails"
	reports -0 --left "$T/feature-fails"
	echo a >"$T/feature-fails"
	reports -1 --left "$T/feature-fails"
	[[ $output == *"WRONG  patched: b: expected 0 signals, got 5"* ]]
	[[ $output == *"WRONG  patched: a: is listed as failing with the feature alone, but the result is: "* ]]
}
