#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

PROBE=$(probe_of sample=suppressed wakeup=suppressed sigio=suppressed setsig=suppressed sigtrap=suppressed limit=untouched \
	hup=suppressed / continue=works step=works handler=works)
GREEN="$PROBE|TAP version 13|1..2|ok 1 a.one|ok 2 b.two|# Totals: pass:2 fail:0 xfail:0 xpass:0 skip:0 error:0"
RED="$PROBE|TAP version 13|1..2|ok 1 a.one|# b.two: expected 0, got 5: \"hits\"|not ok 2 b.two|# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:0 error:0"
KEY=0123456789abcdef

# log_line LEVEL JSON: adds a line to lava-run's log
log_line() {
	printf '{"dt": "2026-01-01T00:00:0%d.123456", "lvl": "%s", "msg": %s}\n' "${SECOND:-0}" "$1" "$2" >>"$T/log"
}

# console LINE: adds a line of the console, as lava-run logs it, with quotes escaped twice
console() {
	local line=${1//\"/\\\\\\\"}
	log_line target "\"$line\""
}

# case_of NAME RESULT
case_of() {
	log_line results "{\"case\": \"c1_x\", \"definition\": \"perf_bpf_filter\", \"result\": \"$2\", \"extra\": {\"test_case_id\": \"C1.$1\"}}"
}

job_ended() {
	log_line results "{\"case\": \"job\", \"definition\": \"lava\", \"result\": \"${1:+fail}\", \"error_msg\": \"${1-}\"}"
}

signed() {
	printf 'lab: exit %s %s' "$1" "$(printf '%s %s' "$1" $KEY | sha256sum | cut -d ' ' -f 1)"
}

# ran LINES: writes the log of a guest whose probe and suite print these, with the results that LAVA lists
ran() {
	local line
	: >"$T/log"
	echo "setting up" >>"$T/log"
	log_line info '"Linux version 9.9.9 is what LAVA waits for"'
	console "Linux version 6.1.9 (gcc)"
	console "lab: up"
	while IFS= read -r line; do
		console "lab: out $line"
		case $line in
		"not ok "*) case_of "${line##* }" fail ;;
		"ok "*SKIP) line=${line% # SKIP} && case_of "${line##* }" skip ;;
		"ok "*) case_of "${line##* }" pass ;;
		esac
	done < <(tr '|' '\n' <<<"$1")
}

# reads OUTCOME [OUT]
reads() {
	echo $KEY >"$T/key"
	run "$SCRIPTS/lava/read" "$T/log" "$T/key" "$T/${2:-guest}"
	grep -q "\"outcome\": \"$1\"" "$T/${2:-guest}/boot.json"
}

@test "labs: report judges the results of LAVA jobs" {
	ran "$RED"
	console "$(signed 1)"
	job_ended
	reads failed stock
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	ran "$GREEN"
	SECOND=7 console "[    7.123456] $(signed 0)"
	reads passed patched
	tr '|' '\n' <<<"$GREEN" | cmp - "$T/patched/output.log"
	echo b.two >"$T/stock-fails"
	run -0 "$SCRIPTS/report" "$T/stock" "$T/patched" --expect "$T/stock-fails"
	[[ $output == *"6.1.9 stock"*"6.1.9 + series"* ]]
	[[ $output == *"tests failed"*"1, as listed"*0* ]]
	[[ $output == *"patched: TCG, 7.0 s"* ]]
	: >"$T/stock-fails"
	run -1 "$SCRIPTS/report" "$T/stock" "$T/patched" --expect "$T/stock-fails"
	[[ $output == *'stock: b.two: fails, but is not listed as failing: expected 0, got 5: "hits"'* ]]
}

@test "labs: read accepts the log that LAVA's web interface serves" {
	ran "$GREEN"
	console "$(signed 0)"
	sed -i 's/^{/- {/' "$T/log"
	reads passed
}

@test "labs: a guest that dies, hangs, does not boot, or prints a splat is reported as such" {
	ran "$GREEN"
	job_ended "Connection closed"
	reads lost
	one_line "read: log: lost: Connection closed"
	ran "$GREEN"
	job_ended "lava-test-monitor timed out after 90 seconds"
	reads hang
	: >"$T/log"
	console "Linux version 6.1.9 (gcc)"
	job_ended "lava-test-monitor timed out after 90 seconds"
	reads no-boot
	echo "lava-run: not found" >"$T/log"
	reads no-boot
	ran "$GREEN"
	console "WARNING: CPU: 1 PID: 1 at nowhere"
	console "$(signed 0)"
	reads splat
	one_line "read: log: splat: WARNING: CPU: 1 *"
}

@test "labs: without the key, the end of a run is forged" {
	for end in "lab: exit 0 $(printf %064d 0)" "lab: exit 0" "lab: exit" "lab: exit x y" \
		"$(signed 1 | sed 's/exit 1/exit 0/')"; do
		ran "$GREEN"
		console "$end"
		reads forged
	done
	ran "$GREEN"
	console "lab: exit 0 $(printf %064d 0)"
	console "$(signed 0)"
	reads forged
	ran "$GREEN"
	console "$(signed 0)"
	console "$(signed 0)"
	reads forged
	# The text must be at the start of a line.
	ran "$GREEN"
	console "x $(signed 0)"
	reads lost
}

@test "labs: a run is forged if LAVA lists other results than the guest printed" {
	ran "$GREEN"
	case_of c.three pass
	console "$(signed 0)"
	reads forged
	ran "${RED/not ok 2/not  ok 2}"
	console "$(signed 1)"
	reads failed
	ran "$RED"
	sed -i 's/"result": "fail", "extra"/"result": "pass", "extra"/' "$T/log"
	console "$(signed 1)"
	reads forged
}

@test "labs: a missing line makes the results invalid" {
	ran "$GREEN"
	sed -i '/ok 1 a.one/d; /C1.a.one/d' "$T/log"
	console "$(signed 0)"
	reads passed patched
	ran "$RED"
	console "$(signed 1)"
	reads failed stock
	echo b.two >"$T/stock-fails"
	run -1 "$SCRIPTS/report" "$T/stock" "$T/patched" --expect "$T/stock-fails"
	[[ $output == *"WRONG  patched: KTAP out of order"* ]]
}

@test "labs: a missing kernel is refused" {
	command_is apt-cache 'exit 1'
	run "$SCRIPTS/ship/labs"
	one_line "labs: no kernel is built; run make verify BASE=6.1"
}

@test "labs: run requires dist/labs" {
	run "$SCRIPTS/lava/run" 4.19
	one_line "run: *dist/labs does not exist; run make labs*"
}

@test "labs: read reports a missing log or key" {
	run "$SCRIPTS/lava/read" "$T/none" "$T/key" "$T/out"
	one_line "read: $T/none: No such file or directory"
	ran "$GREEN"
	run "$SCRIPTS/lava/read" "$T/log" "$T/none" "$T/out"
	one_line "read: $T/none: No such file or directory"
	[ ! -e "$T/out/boot.json" ]
	printf '\377\376' >"$T/binary"
	run "$SCRIPTS/lava/read" "$T/log" "$T/binary" "$T/out"
	one_line "read: log: *"
}

# The files that make labs writes, for a fake kernel.
written() {
	mkdir -p "$T/stock/obj/arch/x86/boot" "$T/patched/obj/arch/x86/boot" "$T/out/lava"
	echo one >"$T/stock/obj/arch/x86/boot/bzImage"
	echo two >"$T/patched/obj/arch/x86/boot/bzImage"
	/usr/bin/python3 -B - "$SCRIPTS" "$T" <<-'END'
	import importlib.machinery, importlib.util, pathlib, sys
	sys.path[0], folder = sys.argv[1], pathlib.Path(sys.argv[2])
	import lab
	from lab import base, tree
	lab.run = lambda verb: None
	loader = importlib.machinery.SourceFileLoader("labs", f"{sys.argv[1]}/ship/labs")
	labs = importlib.util.module_from_spec(importlib.util.spec_from_loader("labs", loader))
	loader.exec_module(labs)
	labs.lava(base.find("6.1"), tree.Work(base.find("6.1"), folder / "stock"), folder / "out", "https://lab/x")
	END
}

@test "labs: the jobs of a base have the URLs of all that they boot" {
	written
	[ "$(cd "$T/out/lava" && echo ./*)" = "./6.1-oops.yaml ./6.1-patched.yaml ./6.1-stock.yaml" ]
	cmp "$T/out/kernels/6.1-patched/bzImage" "$T/patched/obj/arch/x86/boot/bzImage"
	grep -q 'url: https://lab/x/kernels/6.1-patched/bzImage' "$T/out/lava/6.1-patched.yaml"
	grep -q 'lab.tests=\*,oops.\*"' "$T/out/lava/6.1-patched.yaml"
	grep -q 'url: https://lab/x/kernels/6.1-stock/bzImage' "$T/out/lava/6.1-oops.yaml"
	! grep -n '\$' "$T/out/lava"/*.yaml || false
}

@test "labs: jobs and device are valid according to LAVA's schemas" {
	/usr/bin/python3 -c 'import lava_common.schemas' 2>/dev/null || skip "no lava-common"
	written
	/usr/bin/python3 -B - "$T/out/lava"/*.yaml "$SCRIPTS/lava/device.yaml" <<-'END'
	import sys, yaml
	from lava_common import schemas
	from lava_common.schemas import device
	*jobs, machine = [yaml.safe_load(open(path)) for path in sys.argv[1:]]
	device.validate(machine)
	for job in jobs:
	    schemas.validate(job, strict=True)
	END
}

@test "labs: read ignores an incomplete line and a line without a level" {
	ran "$GREEN"
	printf '{"dt": "2026-01-01T00:00:00.1", "msg": "no level"}\n{"dt": "2026-01-01T00:0' >>"$T/log"
	reads lost
}

# document: writes a result in KCIDB's JSON
document() {
	/usr/bin/python3 -B - "$SCRIPTS" >"$T/kcidb.json" <<-'END'
	import json, sys
	sys.path[0] = sys.argv[1]
	from lab import kcidb
	guest = {"kernel": "6.1.9", "error": None, "accel": "tcg", "reasons": {"b.two": "got 5"}, "tests": {"a.one": "pass", "b.two": "fail", "c.x": "skip"}}
	found = {"of": "12ab", "deadly": ["oops.x"], "stock": guest, "patched": {**guest, "tests": {}, "error": "lost"}}
	print(json.dumps(kcidb.document("6.1", found, {"a.one": "C1", "b.two": "C2"})))
	END
}

@test "labs: KCIDB: IDs are unique, references are valid, and each result has its rule" {
	document
	/usr/bin/python3 -B - "$T/kcidb.json" <<-'END'
	import json, sys
	said = json.load(open(sys.argv[1]))
	assert said["version"] == {"major": 5, "minor": 3}
	for kind in ("checkouts", "builds", "tests"):
	    assert len({one["id"] for one in said[kind]}) == len(said[kind])
	    assert all(one["id"].startswith(one["origin"] + ":") for one in said[kind])
	assert {one["checkout_id"] for one in said["builds"]} == {one["id"] for one in said["checkouts"]}
	assert {one["build_id"] for one in said["tests"]} == {one["id"] for one in said["builds"]}
	assert not [one for one in said["tests"] if None in one.values()]
	status = [(one["path"], one["status"], one["misc"].get("rule")) for one in said["tests"]]
	assert status == [("perf_bpf_filter", "FAIL", None), ("perf_bpf_filter.a.one", "PASS", "C1"),
	                  ("perf_bpf_filter.b.two", "FAIL", "C2"), ("perf_bpf_filter.c.x", "SKIP", "?"),
	                  ("perf_bpf_filter.oops.x", "FAIL", "?"), ("perf_bpf_filter", "ERROR", None)], status
	END
}

@test "labs: KCIDB: the document is valid according to KCIDB's schema" {
	/usr/bin/python3 -c 'import kcidb_io' 2>/dev/null || skip "no kcidb_io"
	document
	/usr/bin/python3 -c 'import json, kcidb_io, sys; assert kcidb_io.schema.V5_3.is_valid_exactly(json.load(sys.stdin))' <"$T/kcidb.json"
}

# installed -STATUS KTAP PASS FAIL SKIP EXIT: runs autopkgtest's suite with these results; stock-fails lists a.one and
# c.x
installed() {
	mkdir -p "$T/tests/stock-fails"
	cp -r "$SCRIPTS/autopkgtest/suite" "$SCRIPTS/lab" "$SCRIPTS/arch" "$T/tests"
	printf '%s\n' a.one c.x oops.x "d.x # preempt=never" >"$T/tests/stock-fails/$(uname -r | cut -d . -f 1,2)"
	printf '#!/bin/sh\necho %q\n' "$PROBE" >"$T/tests/perf_bpf_probe"
	{
		printf '#!/bin/sh\ncat <<E\nTAP version 13\n'
		tr '|' '\n' <<<"$2"
		printf '# Totals: pass:%d fail:%d xfail:0 xpass:0 skip:%d error:0\nE\nexit %d\n' "${@:3}"
	} >"$T/tests/perf_bpf_filter"
	chmod +x "$T/tests"/perf*
	run "$1" "$T/tests/suite"
}

@test "labs: autopkgtest: passes for a kernel with the series, and for a stock one that fails the listed tests" {
	installed -0 '1..3|ok 1 a.one|ok 2 b.x|ok 3 c.x' 3 0 0 0
	[[ ${lines[-1]} == "Linux $(uname -r), taken for with the series: 3 passed, 0 failed, 0 skipped, "* ]]
	installed -0 '1..3|not ok 1 a.one|ok 2 b.x|ok 3 c.x # SKIP' 1 1 1 1
	[[ ${lines[-1]} == *"taken for stock: 1 passed, 1 failed, as listed, 1 skipped, "* ]]
}

@test "labs: autopkgtest: fails on unexpected results, and on a wrong exit code; exit code 77 if all is skipped" {
	installed -1 '1..3|not ok 1 a.one|not ok 2 b.x|not ok 3 c.x' 0 3 0 1
	[[ $output == *"WRONG  b.x: fails, but is not listed as failing: failed"* ]]
	installed -1 '1..3|not ok 1 a.one|ok 2 b.x|ok 3 c.x' 2 1 0 1
	installed -1 '1..3|ok 1 a.one|ok 2 b.x|ok 3 c.x' 3 0 0 1
	[[ $output == *"exit code 1 does not fit the test results"* ]]
	installed -1 '1..3|ok 1 a.one|ok 2 b.x' 2 0 0 0
	installed -77 '1..1|ok 1 a.one # SKIP' 0 0 1 4
}

@test "labs: export: the JUnit file counts skips and failures correctly" {
	fake_suite "$BUILD/linux/selftests/perf_bpf_filter"
	printf '%s\n' 'ok 1 stock: a' 'ok 2 stock: b # SKIP' 'not ok 3 patched: a: got 5' 1..3 >"$BUILD/results-6.1.tap"
	printf '{"of": "12", "deadly": [], "stock": {"error": null, "tests": {}, "reasons": {}, "logs": "%s"}, "patched": {"error": null, "tests": {}, "reasons": {}}}' \
		"$BUILD/linux/stock" >"$BUILD/results-6.1.json"
	run -0 "$SCRIPTS/ship/export"
	grep -q 'failures="1" skipped="1" tests="3"' "$BUILD/export/6.1.junit.xml"
	grep -q '"checkouts"' "$BUILD/export/6.1.kcidb.json"
	rm "$BUILD/results-6.1.json"
	run "$SCRIPTS/ship/export"
	one_line "export: no results; run make verify BASE=6.1"
}
