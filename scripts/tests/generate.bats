#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# A series of one patch, which adds a function to a file of the tree; a suite of four tests; a guest that runs
# $1, with the number of its mutant in $mutant.
prepare() {
	fake_top
	fake_builds
	series=$T/top/patches/linux-6.1 work=$BUILD/linux-6.1.9-1
	cat >>"$work/stock/Makefile" <<-'END'
	%.o:
	> gcc -Iinclude -c -o /dev/null $*.c
	> mkdir -p $(O)/$(dir $@) && touch $(O)/$@
	%.i:
	> gcc -Iinclude -E -o $(O)/$@ $*.c
	END
	sed -i 's/^bzImage:/bzImage: kernel\/events\/core.o/' "$work/stock/Makefile"
	mkdir -p "$work/stock/kernel/events" "$work/stock/include/linux"
	printf '%s\n' '#define unlikely(x) (x)' '#define __read_mostly' '#define EXPORT_SYMBOL_GPL(x) struct dummy' \
		'#define core_param(...) struct dummy' >"$work/stock/include/linux/moduleparam.h"
	sed -i '1i #include <linux/moduleparam.h>' "$work/stock/kernel/core.c"
	printf '%s\n' '#include <linux/moduleparam.h>' 'void f(int); int g;' >"$work/stock/kernel/events/core.c"
	echo 'obj-y := core.o' >"$work/stock/kernel/events/Makefile"
	mkdir -p "$series" "$T/series-tree/a/kernel/events" "$T/series-tree/b/kernel/events"
	cp "$work/stock/kernel/events/core.c" "$T/series-tree/a/kernel/events"
	# A mutant of MACRO(NAME) does not compile; the mutants of f(a) are excluded by #ifdef.
	{
		cat "$work/stock/kernel/events/core.c"
		printf '%s\n' '#define MACRO(x) do { int x = 0; f(x); } while (0)' 'void added(int a)' '{' '	f(1);' \
			'	if (a > 1)' '		g = 0;' '	MACRO(NAME);' '#ifdef NEVER' '	f(a);' '#endif' '}'
	} >"$T/series-tree/b/kernel/events/core.c"
	differences >"$series/0101-one.patch"
	sed -i '1i Tests: t.b in the selftests.\n\n---' "$series/0101-one.patch"
	printf '%s\n' "# BASE linux-6.1 6.1.9-1" 0101-one.patch >"$series/series"
	touch "$series/stock-fails"
	fake_suite "$work/selftests/perf_bpf_filter" t.a=C1 t.b=C1 oops.a=C1 races.a=C1
	export FAKE_GUEST='up; while [ $# -gt 0 ]; do [ "$1" != -append ] || append=$2; shift; done
mutant=${append##*perf_mutant=} mutant=${mutant%% *} folder=${verdict%/*}
echo "$mutant $(cat "$folder/first" "$folder/rest" | xargs)" >>"'"$T"'/boots"
results() {
	local name number=0
	for name; do
		number=$((number + 1))
		case $name in
		-*) echo "# ${name#-}: expected 1 hit, got 0 (t.cc:1)" && echo "not ok $number ${name#-}" ;;
		*) echo "ok $number $name" ;;
		esac
	done >>"$output"
	echo "exit 0" >"$verdict"
}
passes() { results $(cat "$folder/first" "$folder/rest"); }
'"$1"
}

# generate ARGUMENT...: some mutants survive, or something is wrong
generate() {
	run -1 "$T/top/scripts/prove/generate-mutants" "$@"
}

@test "generate-mutants: mutate.py: mutants of small functions, and a program with all its mutants" {
	run -0 "$BATS_TEST_DIRNAME/mutate.py"
}

@test "generate-mutants: mutants killed by a test, a crash, a race, and survivors; a second run boots nothing" {
	prepare 'case $mutant in 1) results -t.b ;; 2) say "BUG: kernel NULL pointer dereference" ;; 3) [[ $(cat $folder/rest) == *races* ]] && results -races.a || passes ;; *) passes ;; esac'
	generate 6.1
	[[ $output == *"0101 added: call: removed: f(1);: killed: t.b fails: expected 1 hit, got 0 (t.cc:1)"* ]]
	[[ $output == *": killed: splat: BUG: kernel NULL pointer dereference"* ]]
	[[ $output == *": killed: races.a fails: expected 1 hit, got 0 (t.cc:1)"* ]]
	[[ $output == *"not ok "*": survived (perf_mutant=5)"* ]]
	[[ $output != *"NAME + 1"* && $output != *"f(a);"* ]]
	[ "$(grep -cE '^(not )?ok ' <<<"$output")" -eq 9 ]
	# The tests that the patch names run first; races and oops.* run only for survivors.
	grep -qx "1 t.b t.a" "$T/boots"
	[ "$(grep -c "^1 .*races" "$T/boots")" -eq 0 ]
	grep -qx "5 oops.a races.a" "$T/boots"
	cp "$T/boots" "$T/before"
	before=$(grep -E '^(ok|not ok)' <<<"$output")
	generate 6.1
	cmp "$T/boots" "$T/before"
	[ "$before" = "$(grep -E '^(ok|not ok)' <<<"$output")" ]
}

@test "generate-mutants: does not draw equivalent mutants, reports missing ones, draws three for a patch" {
	prepare 'results -t.b'
	generate 6.1
	[[ ${lines[-1]} == "generate-mutants: with perf_mutant=0: t.b fails: expected 1 hit, got 0 (t.cc:1); the logs are in "* ]]
	rm -rf "$T/top" "$BUILD" "$T/series-tree"
	prepare '[ $mutant = 0 ] && passes || results -t.b'
	mkdir -p "$T/top/patches/mutants/linux-6.1"
	printf '%s\n' '# SPDX-License-Identifier: GPL-2.0' '0101 added: call: removed: f(1);' '	f() does nothing.' \
		'0101 added: call: removed: gone();' '	It is gone.' >"$T/top/patches/mutants/linux-6.1/equivalent"
	generate 6.1 1
	[ "$(grep -c '^ok ' <<<"$output")" -eq 3 ]
	[[ $output != *"removed: f(1);"* ]]
	[[ $output == *"not ok 4 mutant 0101 added: call: removed: gone();: is listed as equivalent, but does not exist"* ]]
	[[ $output == *" 100 %"* ]]
}
