#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# rows PART WAY=P50...: a part of the output of perf_bpf_bench --json; "-" means that the kernel does not
# support the way
rows() {
	local part=$1 way comma="" program
	shift
	printf '"%s": [' "$part"
	for way; do
		case $way in rejects* | accepts* | program*) program=true ;; *) program=false ;; esac
		printf '%s\n{"id": "%s", "title": "way %s", "program": %s, ' "$comma" "${way%=*}" "${way%=*}" $program
		if [ "${way#*=}" = - ]; then
			printf '"available": false, "why": "it is old"}'
		else
			printf '"available": true, "p50": %s, "ratio": 1.5, "least": 1.25, "most": 2}' "${way#*=}"
		fi
		comma=,
	done
	printf '], "%s.title": "ticks of one %s"' "$part" "$part"
}

# figures WAY=P50...: the output of perf_bpf_bench --json ways
figures() {
	printf '{%s}\n' "$(rows ways "$@")"
}

# guest KERNEL COMPILER WAY=P50...: writes the results of a guest with these figures
guest() {
	local out=$T/w/$1-bench compiler=$2
	shift 2
	mkdir -p "$out"
	{ echo "guest-init: up"; figures "$@"; } >"$out/output.log"
	printf 'Linux version 6.1.9 (build@build) (%s, GNU ld (GNU Binutils) 2.40) #1\r\n' "$compiler" >"$out/console.log"
}

# committed COMPILER LINE...
committed() {
	local compiler=$1
	shift
	mkdir -p "$T/patches/expect/linux-6.1"
	printf '# %s\n# a comment\n' "$compiler" >"$T/patches/expect/linux-6.1/instructions"
	[ $# -eq 0 ] || printf '%s\n' "$@" >>"$T/patches/expect/linux-6.1/instructions"
}

# prices -STATUS EXPRESSION: evaluates it with lab/prices.py
prices() {
	run "$1" env -C "$SCRIPTS" python3 -B -c 'import pathlib, sys; from lab import prices
sys.argv[0], folder = "bench", pathlib.Path(sys.argv[1])
guests, committed = folder / "w", folder / "patches/expect/linux-6.1/instructions"
sys.exit('"$2"')' "$T"
}

# checks -STATUS
checks() {
	prices "$1" 'prices.check("6.1", guests, committed)'
}

# The kernels, and the figures of their guests and of this machine.
built() {
	verified_kernels
	{
		echo "{$(rows ways bare=7 sampling=822 sigtrap=4672 rejects=676 rejects.async=4909),"
		echo "$(rows stops bare=21 counting=481 program.async=- program.rr=- ptrace.int3=10021)}"
	} >"$T/figures-stock"
	{
		echo "{$(rows ways bare=7 sampling=822 sigtrap=- rejects=600 rejects.async=600),"
		echo "$(rows stops bare=21 counting=481 program.async=620 program.rr=1021 ptrace.int3=10021)}"
	} >"$T/figures-patched"
	# The program that runs on this machine.
	{
		echo '{"rounds": 7, "kernel": "6.18.1-test", "virtual": true,'
		echo "$(rows stops counting=26 program.async=27 ptrace.int3=500 uprobe=-)}"
	} >"$T/figures-here"
	program "$BUILD/linux-6.1.9-1/selftests/perf_bpf_bench" "echo \"\$*\" >>'$T/ran-here'; cat '$T/figures-here'"
	command_is id 'echo 0'
	export FAKE_GUEST='up; [[ $* == */stock/* ]] && kernel=stock || kernel=patched
		cat "'$T'/figures-$kernel" >>"$output"; echo "exit 0" >"$verdict"'
}

@test "bench: --check and --record without a base, or with two, are refused" {
	for mode in --check --record; do
		run "$SCRIPTS/prove/bench" $mode
		one_line "usage: bench *$mode takes one BASE)"
		run "$SCRIPTS/prove/bench" $mode 6.1 6.12
		one_line "usage: bench *$mode takes one BASE)"
	done
}

@test "bench: if no kernel is built, fails and downloads nothing" {
	command_is apt-get 'echo "$*" >>"'"$T"'/downloads"; exit 1'
	run "$SCRIPTS/prove/bench"
	one_line "bench: no kernels are built; run make verify BASE=6.1 first"
	run "$SCRIPTS/prove/bench" 6.12
	one_line "bench: no kernels are built for 6.12; run make verify BASE=6.12 first"
	[ ! -e "$T/downloads" ]
	built
	rm -r "$BUILD/linux-6.1.9-1/patched/obj"
	run "$SCRIPTS/prove/bench" 6.1
	one_line "bench: no kernels are built for 6.1; run make verify BASE=6.1 first"
	# The first release of a line: the next step is to fetch its source.
	mkdir -p "$BUILD/linux-7.0/patched/obj/arch/x86/boot"
	touch "$BUILD/linux-7.0/patched/obj/arch/x86/boot/bzImage"
	run "$SCRIPTS/prove/bench" 7.0
	[ "$status" -ne 0 ]
	[[ $output == fetch:* ]]
}

@test "bench: builds the stock kernel if verify did not, except with --quick" {
	built
	rm -r "$BUILD/linux-6.1.9-1/stock/obj"
	run "$SCRIPTS/prove/bench" 6.1
	one_line "build: $BUILD/linux-6.1.9-1/stock is not a kernel tree *"
	run "$SCRIPTS/prove/bench" --quick 6.1
	one_line "usage: bench *goes with --check?"
	run "$SCRIPTS/prove/bench" --check --quick 6.1
	[[ $output != *"is not a kernel tree"* ]]
}

@test "bench: measures both kernels, and writes a table and JSON" {
	built
	run -0 "$SCRIPTS/prove/bench"
	[[ ${lines[0]} =~ ^\ +6.1$ ]]
	[[ ${lines[1]} =~ \ stock\ +series$ ]]
	[[ $output =~ "way rejects"\ +676\ +600 ]]
	[[ $output =~ "way sigtrap"\ +4672\ +- ]]
	python3 -c "import json; b = json.load(open('$BUILD/bench.json'))['6.1']
assert b['patched']['ways']['rejects']['p50'] == 600 and b['stock']['ways']['rejects']['p50'] == 676"
}

@test "bench: seven bases are printed as two tables of at most 100 columns" {
	guest stock "gcc 12" sampling=600 rejects=676
	guest patched "gcc 12" sampling=600 rejects=600
	prices -0 'prices.print_tables({name: prices.read(guests) for name in "5.10 5.15 6.1 6.6 6.12 6.18 7.3".split()}, None)'
	[[ ${lines[0]} =~ ^\ +5.10\ +5.15\ +6.1\ +6.6$ ]]
	[[ ${lines[4]} =~ ^\ +6.12\ +6.18\ +7.3$ ]]
	[[ ${lines[6]} =~ "way sampling"(\ +600){6}$ ]]
	[[ ! $output =~ [^$'\n']{101} ]]
}

@test "bench: measures the ways to stop, in the guests and on this machine" {
	built
	run -0 "$SCRIPTS/prove/bench"
	[[ $output =~ "guest instructions of one stops"\ +stock\ +series ]]
	[[ $output =~ "way program.async"\ +-\ +620 ]]
	[[ $output == *"# -: it is old (6.1 stock)"* ]]
	[ "$(cat "$T/ran-here")" = "--json stops" ]
	[[ $output == *"Linux 6.18.1-test, median of 7 rounds"* ]]
	[[ $output == *"It is virtual"* ]]
	[[ $output =~ "ticks of one stops"\ +p50\ +ratio\ +least\ +most ]]
	[[ $output =~ "way ptrace.int3"\ +500\ +1.5\ +1.25\ +2 ]]
	[[ $output == *"# way uprobe: it is old"* ]]
	python3 -c "import json; b = json.load(open('$BUILD/bench.json'))
assert b['6.1']['patched']['stops']['program.async']['p50'] == 620 and b['here']['stops']['counting']['p50'] == 26"
	sed -i 's/"virtual": true/"virtual": false/' "$T/figures-here"
	run -0 "$SCRIPTS/prove/bench"
	[[ $output != *"It is virtual"* ]]
}

@test "bench: --check measures only the ways to hit, and nothing on this machine" {
	built
	export FAKE_GUEST="$FAKE_GUEST"'; cat "$(dirname "$output")/command" >"'"$T"'/commands"'
	run "$SCRIPTS/prove/bench" 6.1
	[[ $(cat "$T/commands") == *"perf_bpf_bench --json --rounds 1 ways overflows stops" ]]
	rm "$T/ran-here"
	run "$SCRIPTS/prove/bench" --check 6.1
	[[ $(cat "$T/commands") == *"perf_bpf_bench --json ways" ]]
	[[ $output == *"way rejects"* ]]
	[[ $output != *stops* ]]
	[ ! -e "$T/ran-here" ]
}

@test "bench: measuring this machine requires root, and a failure is reported" {
	built
	command_is id 'echo 1000'
	run -0 "$SCRIPTS/prove/bench" 6.1
	[[ $output == *"bench: skipping the times on this machine: they require root"* ]]
	[[ $output != *"Times of this machine"* ]]
	[ ! -e "$T/ran-here" ]
	command_is id 'echo 0'
	program "$BUILD/linux-6.1.9-1/selftests/perf_bpf_bench" 'echo "perf_bpf_bench: uprobe: expected 1 stop, got 2"; exit 2'
	run -1 "$SCRIPTS/prove/bench" 6.1
	[ "${lines[-1]}" = "bench: this machine: perf_bpf_bench: uprobe: expected 1 stop, got 2" ]
	[[ $output =~ "way rejects"\ +676\ +600 ]]
	[[ $output != *"Times of this machine"* ]]
}

@test "bench: a guest that fails is reported with its logs" {
	built
	export FAKE_GUEST='up; echo "perf_bpf_bench: rejects: expected 1200 hits counted, got 0" >>"$output"; echo "exit 2" >"$verdict"'
	run "$SCRIPTS/prove/bench" 6.1
	one_line "bench: linux-6.1.9-1 stock: perf_bpf_bench: rejects: expected 1200 hits counted*$BUILD/linux-6.1.9-1/stock-bench/output.log"
	export FAKE_GUEST='exit 0'
	run "$SCRIPTS/prove/bench" 6.1
	one_line "bench: linux-6.1.9-1 stock: boot: no-boot*"
}

@test "bench: reports that the selftests do not build" {
	built
	command_is make 'exit 2'
	run "$SCRIPTS/prove/bench" 6.1
	one_line "bench: the selftests do not build; *selftests.log"
}

@test "bench --check: passes with the committed figures" {
	guest stock gcc-12 bare=7 sampling=822 rejects=676
	guest patched gcc-12 bare=7 sampling=822 rejects=600
	committed gcc-12 "sampling 822 822" "rejects 600"
	checks -0
	[ "${lines[0]}" = "ok 1 bench 6.1: way sampling costs 822 instructions, as patches/expect/linux-6.1/instructions says" ]
	[ "${lines[3]}" = "1..3" ]
	[[ $output != *bare* ]]
}

@test "bench --check: fails if a hit costs one instruction more" {
	guest stock gcc-12 sampling=822 rejects=676
	guest patched gcc-12 sampling=822 rejects=601
	committed gcc-12 "sampling 822 822" "rejects 600"
	checks -1
	[ "${lines[1]}" = "not ok 2 bench 6.1: way rejects costs 601 instructions, 1 more than patches/expect/linux-6.1/instructions says" ]
	[ "$(grep -c '^not ok' <<<"$output")" -eq 1 ]
}

@test "bench --check: passes if a hit costs less" {
	guest stock gcc-12 rejects=676
	guest patched gcc-12 rejects=590
	committed gcc-12 "rejects 600"
	checks -0
	[[ $output == *"ok 1 bench 6.1: way rejects costs 590 instructions, 10 less than"* ]]
}

@test "bench --check: events without a program are compared with stock as well" {
	guest stock gcc-12 sampling=822 rejects=600
	guest patched gcc-12 sampling=823 rejects=700
	committed gcc-12 "sampling 900 900" "rejects 700"
	checks -1
	[ "${lines[2]}" = "not ok 3 bench 6.1: way sampling costs 823 instructions, 1 more than on stock" ]
	[ "$(grep -c '^not ok' <<<"$output")" -eq 1 ]
}

@test "bench --check: without a guest of stock, uses the committed figures of stock" {
	guest patched gcc-12 sampling=823 rejects=600
	committed gcc-12 "sampling 823 822" "rejects 600"
	checks -1
	[ "${lines[2]}" = "not ok 3 bench 6.1: way sampling costs 823 instructions, 1 more than on stock" ]
	[ "$(grep -c '^not ok' <<<"$output")" -eq 1 ]
	committed gcc-12 "sampling 823 823" "rejects 600"
	checks -0
	committed gcc-11 "sampling 823 822" "rejects 600"
	checks -0
	[ "$(grep -c '# SKIP' <<<"$output")" -eq 3 ]
}

@test "bench --check: with another compiler, compares only with stock" {
	guest stock gcc-13 sampling=822 rejects=676
	guest patched gcc-13 sampling=823 rejects=999
	committed gcc-12 "sampling 822 822" "rejects 600"
	checks -1
	[ "${lines[1]}" = "ok 2 bench 6.1: way rejects # SKIP patches/expect/linux-6.1/instructions was measured with gcc-12, this with gcc-13" ]
	[ "$(grep -c '# SKIP' <<<"$output")" -eq 2 ]
	[ "$(grep '^not ok' <<<"$output")" = "not ok 3 bench 6.1: way sampling costs 823 instructions, 1 more than on stock" ]
}

@test "bench --check: reports ways that only one side has" {
	guest stock gcc-12 sampling=- rejects=676
	guest patched gcc-12 sampling=822 rejects=-
	committed gcc-12 "rejects 600"
	checks -1
	[[ $output == *"not ok 1 bench 6.1: way sampling is not in patches/expect/linux-6.1/instructions; run scripts/prove/bench --record 6.1"* ]]
	[[ $output == *"not ok 2 bench 6.1: rejects is in patches/expect/linux-6.1/instructions and was not measured"* ]]
	[[ $output == *"not ok 3 bench 6.1: way sampling was not measured on stock"* ]]
}

@test "bench --check: reports missing and malformed files" {
	guest stock gcc-12 rejects=676
	guest patched gcc-12 rejects=600
	checks -2
	one_line "bench: $T/patches/expect/linux-6.1/instructions: *No such file*; run scripts/prove/bench --record"
	committed gcc-12 "rejects many"
	checks -2
	one_line "bench: $T/patches/expect/linux-6.1/instructions: *many*"
	committed gcc-12
	: >"$T/patches/expect/linux-6.1/instructions"
	checks -2
	one_line "bench: $T/patches/expect/linux-6.1/instructions: *"
	echo '{"ways": [' >"$T/w/patched-bench/output.log"
	checks -2
	one_line "bench: $T/w/patched-bench: no measurements *"
}

@test "bench --record: writes a file with which --check passes" {
	guest stock gcc-12 bare=7 sampling=822 sigtrap=- rejects=676
	guest patched gcc-12 bare=7 sampling=820 sigtrap=- rejects=600
	committed gcc-1 "stale 1"
	prices -0 'prices.record("6.1", prices.read(guests), committed)'
	[ "$(head -n 1 "$T/patches/expect/linux-6.1/instructions")" = "# gcc-12" ]
	[ "$(grep -v '^#' "$T/patches/expect/linux-6.1/instructions" | xargs)" = "sampling 820 822 rejects 600" ]
	checks -0
	[[ ${lines[0]} == "ok 1 "*"820 instructions, as "* ]]
}
