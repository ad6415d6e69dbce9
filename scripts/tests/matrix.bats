#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# measured BASE STOCK_A [ARCH]: writes make verify's results for the tests "a" of rule C1 and "b" of C6
measured() {
	mkdir -p "$BUILD/${3-}"
	fake_suite "$BUILD/linux-$1/selftests${3+-$3}/perf_bpf_filter" a=C1 b=C6
	cat >"$BUILD/${3-}/results-$1.json" <<-END
		{"verdict": "pass", "of": "$(ARCH=${3:-x86} bash -c ". '$SCRIPTS/lib.sh'; lab subject $1")",
		 "stock": {"logs": "$BUILD/linux-$1/stock-boot", "tests": {"a": "$2", "b": "fail"},
		           "reasons": {"b": "7 of 900 hits lost, 3 detaches"}},
		 "patched": {"logs": "$BUILD/linux-$1/patched-boot", "tests": {"a": "pass", "b": "pass"},
		             "reasons": {"b": "0 of 900 hits lost, 3 detaches"}},
		 "deadly": ["b"]}
	END
}

@test "matrix: prints the bases in order, by rule, and the hits lost" {
	measured 6.12 skip
	measured 6.1 fail
	sed -i 's/"stock": {/&"kernel": "6.1.9", /' "$BUILD"/results-6.1*.json
	run -0 "$SCRIPTS/matrix"
	[[ ${lines[0]} =~ ^\ +C1\ +C6$ ]]
	# C6 counts a test that failed, and one that crashed the kernel.
	[[ ${lines[1]} =~ ^6.1\ stock\ +0/1\ +0/2$ ]]
	[[ ${lines[2]} =~ ^6.1\ series\ +1/1\ +1/1$ ]]
	[[ ${lines[3]} =~ ^6.12\ stock\ +-\ +0/2$ ]]
	[[ ${lines[4]} =~ ^6.12\ series\ +1/1\ +1/1$ ]]
	[[ $output =~ hits\ lost,\ stock\ +6.1\ +6.12[[:space:]]b\ +7/900\ +7/900 ]]
	[[ $output =~ hits\ lost,\ with\ the\ series\ +6.1\ +6.12[[:space:]]b\ +0/900\ +0/900 ]]
	[[ $output != *"called 6.1 here"* ]]
	[ "${lines[-1]}" = "matrix: 6.12 was measured on Linux 6.1.9" ]
}

@test "matrix: prints other architectures after x86, and runs their suite with QEMU" {
	measured 6.1 fail
	measured 6.1 skip arm64
	measured 6.12 skip arm64
	command_is qemu-aarch64 'exec "$@"'
	run -0 "$SCRIPTS/matrix"
	[[ ${lines[1]} =~ ^6.1\ stock\ +0/1\ +0/2$ ]]
	[[ ${lines[3]} =~ ^6.1\ arm64\ stock\ +-\ +0/2$ ]]
	[[ ${lines[4]} =~ ^6.1\ arm64\ series\ +1/1\ +1/1$ ]]
	[[ ${lines[5]} =~ ^6.12\ arm64\ stock\ +-\ +0/2$ ]]
	run -0 "$SCRIPTS/matrix" 6.12
	[[ ${lines[1]} =~ ^6.12\ arm64\ stock ]]
	sed -i 's/"of": "/&0/' "$BUILD/arm64/results-6.12.json"
	run -1 "$SCRIPTS/matrix"
	[ "${lines[-1]}" = "matrix: 6.12 arm64 was measured with other patches or tests; run make verify BASE=6.12 ARCH=arm64 again" ]
}

@test "matrix: results that are cut short, or have complaints or no verdict, are never green" {
	local results=$BUILD/results-6.1.json whole cut
	measured 6.1 fail
	whole=$(<"$results")
	for cut in '' '[]' '{}' 'null' '{"of": ""}' "${whole:0:200}" "${whole%?}" "${whole/'"verdict": "pass", '/}" "${whole/'"stock": {'/'"stock": [], "x": {'}"; do
		echo "$cut" >"$results"
		run "$SCRIPTS/matrix" 6.1
		one_line "matrix: no results for 6.1 *; run make verify BASE=6.1"
		run "$SCRIPTS/ship/dist" 6.1
		one_line "dist: *run make verify BASE=6.1 *"
	done
	echo "${whole/pass/fail}" >"$results"
	run -1 "$SCRIPTS/matrix" 6.1
	[ "${lines[-1]}" = "matrix: 6.1 ended with complaints; run make verify BASE=6.1 again" ]
}

@test "matrix: fails without results, or without results for the base" {
	mkdir -p "$BUILD"
	run "$SCRIPTS/matrix"
	one_line "matrix: no results; run make verify BASE=6.1"
	run "$SCRIPTS/matrix" 6.1
	one_line "matrix: no results for 6.1 *make verify BASE=6.1*"
}

@test "dist: fails without results" {
	mkdir -p "$BUILD"
	run "$SCRIPTS/ship/dist" 6.1
	one_line "dist: nothing measured for 6.1; run make verify BASE=6.1 first"
}

@test "matrix: results of other patches or tests are reported, and fail" {
	measured 6.1 fail
	sed -i 's/"of": "/&0/' "$BUILD/results-6.1.json"
	run -1 "$SCRIPTS/matrix"
	[[ ${lines[-1]} == "matrix: 6.1 was measured with other patches or tests; run make verify BASE=6.1 again" ]]
}

# Each base is in the table, or is named with the reason.
@test "matrix: names each base that is left out, with the reason" {
	unset KERNEL_MIRROR
	measured 6.1 fail
	run -0 "$SCRIPTS/matrix"
	[[ $output == *"matrix: 6.12 is left out: no results; make verify BASE=6.12 measures it"* ]]
	[[ $output == *"matrix: 6.18 is left out: its source is on kernel.org; set KERNEL_MIRROR=https://"* ]]
	[[ $output != *"matrix: 6.1 "* ]]
	# The source is on a mirror, or in the build folder.
	KERNEL_MIRROR=file:///mirror run "$SCRIPTS/matrix"
	[[ $output == *"matrix: 6.18 is left out: no results; make verify BASE=6.18 measures it"* ]]
	mkdir -p "$BUILD/linux-6.18.44"
	run "$SCRIPTS/matrix"
	[[ $output == *"matrix: 6.18 is left out: no results;"* ]]
	ARCH=arm64 run "$SCRIPTS/matrix"
	[[ $output == *"matrix: 6.1 arm64 is left out: no results; make verify BASE=6.1 ARCH=arm64 measures it"* ]]
	[[ $output == *"matrix: 6.18 arm64 is left out: patches/expect/linux-6.18/stock-fails.arm64 does not exist, "* ]]
	# Each base that is left out is named, unless one base was asked for.
	[ "$(grep -c "^matrix: [0-9.]* arm64 is left out: " <<<"$output")" -eq "$(cat "$SCRIPTS"/../patches/linux-*/series | grep -c "^# BASE")" ]
	run "$SCRIPTS/matrix" 6.1
	[[ $output != *"left out"* ]]
}

@test "matrix: reports results of a base whose source is gone as not measured again" {
	unset KERNEL_MIRROR
	measured 6.18 fail
	mv "$BUILD/linux-6.18" "$BUILD/elsewhere"
	sed -i "s,$BUILD/linux-6.18,$BUILD/elsewhere," "$BUILD/results-6.18.json"
	run -0 "$SCRIPTS/matrix"
	[[ $output == *"matrix: 6.18 was not measured again: its source is on kernel.org; set KERNEL_MIRROR="* ]]
}

# The names of a distribution's kernels are longer than those of bases.
@test "matrix: no line is longer than 100 columns" {
	measured 6.1 fail
	python3 - "$BUILD" <<-'END'
	import json, pathlib, sys
	build, rules = pathlib.Path(sys.argv[1]), [f"C{i}" for i in range(1, 17)]
	tests = {f"{rule}.{i}": rule for rule in rules for i in range(100)}
	said = {"rules": [{"id": rule, "what": "what"} for rule in rules],
	        "tests": [{"name": name, "rule": rule, "says": "says", "file": "tests/a.cc"} for name, rule in tests.items()]}
	(build / "linux-6.1/selftests/perf_bpf_filter").write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
	found = json.loads((build / "results-6.1.json").read_text())
	for kernel in "stock", "patched":
	    found[kernel]["tests"] = dict.fromkeys(tests, "pass")
	for name in "6.1", "6.12.117+deb12-amd64":
	    (build / f"results-{name}.json").write_text(json.dumps(found))
	END
	run "$SCRIPTS/matrix"
	[[ ${lines[0]} =~ ^\ +C1\ .*C9$ ]]
	[[ $output =~ 6.12.117\+deb12-amd64\ live\ +100/100 ]]
	[ "$(grep -v ^matrix: <<<"$output" | wc -L)" -le 100 ]
}

# make 4.3 does not pass variables from its command line to $(shell).
@test "make matrix: KERNEL_MIRROR, BUILD and ARCH on the command line select the bases" {
	local verb
	unset KERNEL_MIRROR BUILD
	mkdir -p "$T/project/scripts"
	cp "$SCRIPTS/../Makefile" "$T/project"
	cp -r "$SCRIPTS/lab" "$SCRIPTS/arch" "$T/project/scripts"
	(cd "$SCRIPTS/.." && cp --parents patches/linux-*/series patches/expect/linux-*/stock-fails* "$T/project")
	for verb in verify prove/kabi prove/bench try matrix; do
		program "$T/project/scripts/$verb" "echo \"$verb \$*\""
	done
	run -0 make -s -C "$T/project" matrix
	[[ $output == *"verify --each-oops 6.1"* && $output != *"verify --each-oops 6.18"* ]]
	[[ $output == *"verify --each-oops 5.10"*"try --record 6.1 gdb.*"* && $output != *"try --record 5.10"* ]]
	run make -s -C "$T/project" matrix KERNEL_MIRROR=file:///mirror
	[[ $output == *"verify --each-oops 6.18"* ]]
	mkdir -p "$T/other/linux-6.18.44"
	run make -s -C "$T/project" matrix BUILD="$T/other"
	[[ $output == *"verify --each-oops 6.18"* && $output != *"verify --each-oops 6.6"* ]]
	run make -s -C "$T/project" matrix ARCH=arm64 KERNEL_MIRROR=file:///mirror
	[[ $output == *"verify --each-oops 6.12"* && $output != *"verify --each-oops 6.18"* && $output != *"try "* ]]
	program "$T/project/scripts/try" 'exit 1'
	run make -s -C "$T/project" matrix
	[ "$status" -ne 0 ]
}

# tries -STATUS KTAP CODE: runs scripts/try --record with a boot that prints KTAP and returns CODE
tries() {
	local work=$BUILD/linux-6.1.9-1
	fake_top deps apply build
	fake_series "$T/top/patches/linux-6.1"
	mkdir -p "$work/stock"
	program "$T/top/scripts/fetch" "echo '$work/stock'"
	program "$T/top/scripts/boot" "mkdir -p '$work/try' && printf '$2' >'$work/try/output.log'; exit $3"
	command_is make 'exit 0'
	fake_suite "$work/selftests/perf_bpf_filter" gdb.a=C1 gdb.b=C1
	rm -rf "$BUILD/runs"
	run "$1" "$T/top/scripts/try" --record 6.1 'gdb.*'
}

@test "try: --record notes the number of tests, unless one fails or is skipped" {
	tries -0 'ok 1 gdb.a\nok 2 gdb.b\n' 0
	grep -q '"command": "make try TEST='"'gdb.[*]'"'", "counts": "tests", "name": "6.1", "figure": 2,' "$BUILD"/runs/*.json
	tries -1 'ok 1 gdb.a\nok 2 gdb.b # SKIP no gdb\n' 0
	one_line "try: *try is not recorded, because these tests were skipped: gdb.b"
	[ ! -e "$BUILD/runs" ]
	tries -1 'ok 1 gdb.a\nnot ok 2 gdb.b\n' 1
	[ ! -e "$BUILD/runs" ]
	run -2 "$SCRIPTS/try" --record 6.1
	one_line "usage: try * (--record requires TEST; make verify records the whole suite)"
}
