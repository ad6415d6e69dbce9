#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# A repository with one base, its pages, and one result of make verify.
setup() {
	set_up
	fake_top
	mkdir -p "$T/top/selftests/harness" "$T/top/patches/linux-6.1"
	printf '# BASE linux-6.1 6.1.9-1\n0001-one.patch\n' >"$T/top/patches/linux-6.1/series"
	printf 'Subject: [PATCH] perf: Do one thing\n\nText.\n---\n' >"$T/top/patches/linux-6.1/0001-one.patch"
	printf '\t{ "C1", "first" },\n' >"$T/top/selftests/harness/main.cc"
	printf '<!-- generated: %s -->\n<!-- end -->\n' prices bases >"$T/top/README.md"
	printf '<!-- generated: %s -->\n<!-- end -->\n' patches contract >"$T/top/patches/README.md"
	cat >"$T/top/patches/results.json" <<-END
	{"verify": {"6.1": {"date": "2000-01-01", "of": null, "stock": "1/3", "series": "3/3",
	  "rules": {"C1": ["1/3", "3/3"]}}},
	 "bench": {"6.1": {"date": "2000-01-01", "of": null, "stops": {"program, as rr sets it up": [null, 500], "counting breakpoint (the floor)": [400, 400],
	  "sigtrap, handler decides": [5000, 5000], "ptrace, debug register": [1, 9000], "ptrace, INT3": [1, 9000],
	  "gdb, break ... if": [1, 100000], "gdb with perf_bpf_gdb": [1, 600]}}},
	 "runs": {"make mutants": {"counts": "mutants", "of": {"6.1": {"date": "2000-01-01", "of": null, "figure": 7}}}}}
	END
}

@test "results: writes the pages; --check fails if a page was changed by hand" {
	"$T/top/scripts/ship/results"
	run -0 "$T/top/scripts/ship/results" --check
	[ -z "$output" ]
	grep -q '^| 6.1  | 6.1.9-1 | Debian 12 .*3 tests, 2000-01-01, older series' "$T/top/README.md"
	grep -q '^    C1   first$' "$T/top/patches/README.md"
	grep -q '^| 0001  | perf: Do one thing | all   |' "$T/top/patches/README.md"
	grep -q '| make mutants | mutants | (7) |' "$T/top/patches/RESULTS.md"
	sed -i 's/3 tests/4 tests/' "$T/top/README.md"
	run -1 "$T/top/scripts/ship/results" --check
	[ "$output" = "results: README.md: not what patches/results.json and the series say; make results writes it again" ]
}

@test "results: a figure is marked as older after the suite or the series has changed" {
	(cd "$T/top" && . scripts/lib.sh && lab note "make mutants" mutants 6.1 8
		sed -i "/verify/s/null/\"$(lab subject 6.1)\"/" patches/results.json)
	run -0 "$T/top/scripts/ship/results"
	[ "$output" = "results: make mutants 6.1" ]
	grep -q '| make mutants | mutants | 8   |' "$T/top/patches/RESULTS.md"
	grep -q '3 tests, 2000-01-01 ' "$T/top/README.md"
	echo "int another_line;" >>"$T/top/selftests/harness/main.cc"
	run -1 "$T/top/scripts/ship/results" --check
	[[ $output == "results: patches/RESULTS.md README.md: not what"* ]]
	"$T/top/scripts/ship/results"
	grep -q '| make mutants | mutants | (8) |' "$T/top/patches/RESULTS.md"
	grep -q '3 tests, 2000-01-01, older suite ' "$T/top/README.md"
	echo "+another line" >>"$(echo "$T/top/patches/linux-6.1"/0001-*.patch)"
	"$T/top/scripts/ship/results"
	grep -q '3 tests, 2000-01-01, older series ' "$T/top/README.md"
}

# compared -STATUS STOCK PATCHED: what make peers does at the end, with these Python dictionaries of results; test "b" is
# required, and "d" must fail on stock
compared() {
	run "$1" env -C "$T/top/scripts" python3 -B -c 'import ast, pathlib, sys; from lab import compare
stock, patched = map(ast.literal_eval, sys.argv[1:])
sys.exit(compare.judge("6.1", stock, patched, ["b"], ["d"], pathlib.Path("out")))' "${@:2}"
}

@test "results: make peers records what passes, and the result of bpftrace's test on both kernels" {
	compared -0 '{"a": "PASS", "b": "FAIL", "c": "FAIL", "bpftrace-watchpoint-running": "FAIL"}' \
		'{"a": "PASS", "b": "PASS", "c": "FAIL", "bpftrace-watchpoint-running": "PASS"}'
	[ "${lines[1]}" = "ok 2 peers: b, FAIL on stock" ]
	[ "${lines[2]}" = "ok 3 peers: c # SKIP FAIL on both kernels; see out/stock.log" ]
	[ "${lines[4]}" = "1..4" ]
	"$T/top/scripts/ship/results"
	grep -q '| make peers  *| tests  *| 3  *|' "$T/top/patches/RESULTS.md"
	grep -q '| make peers, bpftrace "watchpoint - absolute address" | stock, series | fail, pass |' "$T/top/patches/RESULTS.md"
	run -0 "$T/top/scripts/ship/results" --check
}

@test "results: a run of make peers in which a test fails is not recorded" {
	compared -1 '{"a": "PASS", "b": "PASS"}' '{"a": "FAIL", "b": "PASS"}'
	[ "${lines[0]}" = "not ok 1 peers: a: PASS on stock, FAIL with the series; see out/patched.log" ]
	# A required test may not fail on both kernels, nor be missing.
	compared -1 '{"b": "FAIL"}' '{"b": "FAIL"}'
	compared -1 '{"b": "PASS", "d": "PASS"}' '{"b": "PASS", "d": "PASS"}'
	[ "${lines[1]}" = "not ok 2 peers: d: PASS on stock, which must fail; see out/stock.log" ]
	compared -1 '{"a": "PASS"}' '{"a": "PASS"}'
	[ "${lines[1]}" = "not ok 2 peers: b: nothing on stock, nothing with the series; see out/patched.log" ]
	[ ! -e "$BUILD/runs" ]
}

@test "results: a page without its block, and an invalid results.json, are errors" {
	sed -i /contract/d "$T/top/patches/README.md"
	run -1 "$T/top/scripts/ship/results"
	[ "$output" = "results: patches/README.md: no block '<!-- generated: contract -->' that ends with '<!-- end -->'" ]
	echo "{" >"$T/top/patches/results.json"
	run -1 "$T/top/scripts/ship/results" --check
	[[ $output == "results: patches/results.json: "*"; git checkout restores it" ]]
	for text in '[]' null '{}' '{"verify": {"6.1": 5}, "bench": {}, "runs": {}}'; do
		echo "$text" >"$T/top/patches/results.json"
		run "$T/top/scripts/ship/results" --check
		one_line "results: patches/results.json: not the measurements that make results writes; git checkout restores it"
	done
}

@test "lint: reports a banned word, a wide line, a wrong type, a wrong call of the library, and a missing SPDX line" {
	cp "$SCRIPTS/../.editorconfig" "$SCRIPTS/../.clang-format" "$T/top"
	cd "$T/top"
	printf '# SPDX-License-Identifier: GPL-2.0\n' >good.py
	printf '# SPDX-License-Identifier: GPL-2.0\nwho%s comes\n' ever >word.md
	printf '# SPDX-License-Identifier: GPL-2.0\n# %0121d\n' 0 >wide.py
	printf '# SPDX-License-Identifier: GPL-2.0\ndef one() -> int:\n    return "one"\n' >type.py
	printf '# SPDX-License-Identifier: GPL-2.0\nimport lab\nlab.columns(5)\n' >call.py
	printf 'x = 1\n' >spdx.py
	run -1 scripts/lint good.py word.md wide.py type.py call.py spdx.py
	[[ $output == *"ok 1 lint: good.py"*"not ok 2 lint: word.md"*'word.md:2: "who'*'ever": '*"not ok 3 lint: wide.py"*"wide.py:2: 123 columns, at most 120"* ]]
	[[ $output == *"not ok 4 lint: type.py"*"type.py:3: error: "*"not ok 5 lint: call.py"*"call.py:3: error: Argument 1 to "*"not ok 6 lint: spdx.py"*"spdx.py: no SPDX line"* ]]
}

@test "readme-example: fails if no kernel is built" {
	run -1 "$SCRIPTS/prove/readme-example" 6.1
	[ "$output" = "readme-example: no kernel is built for 6.1; run make verify BASE=6.1 first" ]
}

@test "version: prints the version at a tag, after a tag, and without tags" {
	printf '# Changes\n\n## 1.2\n' >"$T/top/CHANGES.md"
	export GIT_CEILING_DIRECTORIES=$T GIT_CONFIG_GLOBAL=/dev/null
	[ "$("$T/top/scripts/ship/version")" = 1.2 ]
	git -C "$T/top" init -q
	git -C "$T/top" -c user.name=a -c user.email=a@b commit -q --allow-empty --date=2001-02-03T04:05:06Z -m one
	[[ $("$T/top/scripts/ship/version") == 1.2-*-g* ]]
	git -C "$T/top" tag v1.3
	[ "$("$T/top/scripts/ship/version")" = 1.3 ]
	git -C "$T/top" -c user.name=a -c user.email=a@b commit -q --allow-empty -m two
	[[ $("$T/top/scripts/ship/version") == 1.3-1-g* ]]
}

@test "results: a run with complaints is not recorded, but the pages are written" {
	mkdir -p "$BUILD"
	fake_suite "$T/linux/selftests/perf_bpf_filter"
	printf '{"stock": {"logs": "%s/linux/stock-boot"}, "verdict": "fail", "of": ""}' "$T" >"$BUILD/results-6.1.json"
	run -0 "$T/top/scripts/ship/results"
	[ "$output" = "results: make verify BASE=6.1 ended with complaints, or had KSRC, VERSION or RACE_SECONDS set: not recorded; repeat it" ]
	grep -q '"6.1": {"date": "2000-01-01"' "$T/top/patches/results.json"
	run -0 "$T/top/scripts/ship/results" --check
}

@test "rules: a test in the file of another theme is an error" {
	local tests='{"name": "a.b", "rule": "C1", "says": "x", "file": "FILE"}' file all=
	for file in tests/a.cc tests/a_b.cc a/b.cc tests/b.cc tests/b_a.cc b/a.cc tests/ab.cc; do
		all+=${all:+, }${tests/FILE/$file}
	done
	command_is suite "echo '{\"rules\": [], \"tests\": [$all]}'"
	run "$SCRIPTS/ship/rules" "$T/bin/suite"
	one_line "rules: a.b is in tests/b.cc; a.b is in tests/b_a.cc; a.b is in b/a.cc; a.b is in tests/ab.cc: *"
}

@test "rules: 0901 of each base states the rules that users rely on" {
	cp -r "$SCRIPTS" "$SCRIPTS/../patches" "$T"
	command_is suite "echo '{\"rules\": [$(printf ', {"id": "C%s", "what": "w"}' {1..16} | cut -c 3-)], \"tests\": []}'"
	run "$T/scripts/ship/rules" "$T/bin/suite"
	[[ $output != *0901* ]]
	sed -i 's/has no effect that/has no effect which/' "$T"/patches/linux-6.6/0901-*
	run "$T/scripts/ship/rules" "$T/bin/suite"
	[[ $output == *"no sentence in 0901 of 6.6 that states C1: Otherwise, the overflow has no effect"* ]]
	[[ $output != *"0901 of 6.1 "* ]]
}

@test "results: a run with KSRC or VERSION is not recorded, because it does not measure the base" {
	local set
	for set in KSRC="$T" VERSION=6.1.8-1; do
		(cd "$T/top" && export "${set?}" && . scripts/lib.sh && lab note "make mutants" mutants 6.1 8) 2>"$T/said"
		grep -q "make mutants: not recorded, because ${set%%=*} is set$" "$T/said"
		[ ! -e "$BUILD/runs" ]
	done
}
