#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
# What cut (scripts/livepatch/cut.cc) has to stop at, and what it must not take for the kernel's. Each test cuts a
# change that is fine, too.
load common
load cutter

# shellcheck disable=SC2034 # setup_file() uses it
tools=(cut)
FLAGS+=(-fno-stack-protector -fno-jump-tables)

# core: core.c is what comes on standard input; other.c has other(), and what is in $1.
core() {
	mkdir -p "$T/source"
	{ echo 'extern int other(int);'; cat; } >"$T/source/core.c"
	printf '%s\n' 'int other(int x) { return x ^ 5; }' "$@" >"$T/source/other.c"
}

# change EXPRESSION...: cuts what sed makes of core.c
change() {
	cp "$T/source/core.c" "$T/before.c"
	printf '%s\n' "$@" >"$T/sed"
	sed -i -f "$T/sed" "$T/source/core.c"
	! cmp -s "$T/source/core.c" "$T/before.c"
	cut
	mv "$T/before.c" "$T/source/core.c"
}

# stops MESSAGE: cut said that, and no more
stops() {
	[ "$status" -eq 1 ]
	[ "$output" = "cut: $1" ]
}

# replaced FUNCTIONS: these, and cut was content
replaced() {
	[ "$status" -eq 0 ]
	[ "$(sed 's/REPLACE(\(.*\), .*/\1/' "$T/out/functions.h" | paste -sd ' ')" = "$1" ]
}

@test "cut: data that changes stops it" {
	core <<-'END'
	struct ops { int (*open)(int); int (*close)(int); int flags; };
	static __attribute__((noinline)) int my_open(int x) { return other(x) + 1; }
	static __attribute__((noinline)) int my_close(int x) { return other(x) + 2; }
	struct ops my_ops = { .open = my_open, .flags = 1 };
	int keep_close(int x) { return my_close(x); }
	static const unsigned char table[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	int look(unsigned i) { return table[i & 7]; }
	int changed(int x) { return other(x) * 3; }
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
	change 's/flags = 1/flags = 2/'
	stops 'core.o: my_ops differs (its byte 16), and stays as the kernel has it; say "keep my_ops" in the plan if that will do, and why'
	change 's/\.flags = 1/.close = my_close, &/'
	stops 'core.o: my_ops differs (it points to my_close), and stays as the kernel has it; say "keep my_ops" in the plan if that will do, and why'
	change 's/{ 1, 2/{ 9, 2/'
	stops 'core.o: table differs (its byte 0), and stays as the kernel has it; say "keep table" in the plan if that will do, and why'
	echo 'keep table' >>"$T/plan"
	change 's/{ 1, 2/{ 9, 2/' 's/x) \* 3/x) * 4/'
	replaced changed
}

@test "cut: a table that the compiler makes of a switch is a part of the function" {
	core <<-'END'
	int name(int x) { switch (x) { case 0: return 7; case 1: return 19; case 2: return 4; case 3: return 88; case 4: return 3; case 5: return 12; } return 0; }
	int changed(int x) { return other(x) * 3; }
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
	change 's/return 88/return 89/'
	replaced name
	[ "$(cat "$T/out/differences")" = "core.o: name: its table CSWTCH differs" ]
	objdump -s "$T/out/core.o" | grep -q '59000000'
}

@test "cut: a new entry of what the kernel's link gathers stops it" {
	core <<-'END'
	int changed(int x) { return other(x) * 3; }
	asm(".pushsection __setup, \"a\"; .quad changed; .popsection");
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
	change 's/quad changed/&, other/'
	stops 'core.o: __setup differs, and stays as the kernel has it; say "keep __setup" in the plan if that will do, and why'
}
