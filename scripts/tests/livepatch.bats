#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
# Tests the tools of scripts/livepatch on a kernel of two files, with one instance of each construct.
load common
load cutter

# The constructs of a real kernel. other.c has a static variable and a static function with the same names as
# core.c.
sources() {
	mkdir -p "$1"
	cat >"$1/other.c" <<'END'
static volatile int twice[4] = { 1 };
static __attribute__((noinline)) int helper(int i) { return twice[i] ^ 5; }
int other(int i) { return helper(i + 1) + helper(i); }
int calls_untraced(int i);
END
	cat >"$1/core.c" <<'END'
#ifdef KEY_NOWHERE
extern int nowhere;
#endif
#ifndef INLINED
#define INLINED
#endif
#ifndef KEYED
#define KEYED
#endif
#ifndef UNTRACED
#define UNTRACED
#endif
#ifndef NEW
#define NEW
#endif
#ifndef POINTED
#define POINTED same
#endif
#ifndef CONSTANT
#define CONSTANT
#endif
#ifndef TELLS
#define TELLS
#endif
#ifndef COLD
#define COLD
#endif
#ifndef WARNS
#define WARNS
#endif
#ifdef SEALED
asm(".pushsection .ibt_endbr_seal, \"a\"; .long user_one - .; .popsection");
#endif
#define KEY(key) asm volatile("1: nop; .pushsection __jump_table, \"aw\"; .long 1b - ., 1b - .; .quad " #key " - .; .popsection")
extern int other(int);
int key_a, key_b;
static volatile int twice[4] = { 2 };
static __attribute__((noinline)) int helper(int i) { return twice[i & 3] ^ 7; }
static inline int inlined(int i) { return i * 3 INLINED; }
int user_one(int i) { return inlined(i) + helper(i); }
int user_two(int i) { return inlined(i) - other(i); }
int keyed(int i) { KEY(key_a); return i + 1 KEYED; }
int unkeyed(int i) { KEY(key_b); return i + 2; }
__attribute__((noinline, no_instrument_function)) int untraced(int i) { return i + twice[3] UNTRACED; }
int calls_untraced(int i) { return untraced(i) * 2; }
int same(int i) { static int count; return count += i; }
int constant(int i) { asm volatile("mov $0x123456789abcdef, %%rax; 1: .pushsection runtime_ptr_constant, \"a\"; .long 1b - 8 - .; .popsection" ::: "rax"); return i + 3 CONSTANT; }
int warns(int i) { asm volatile("ud2; 1: .pushsection .discard.reachable; .long 1b - .; .popsection"); return i + 4 WARNS; }
int tells(int i) { void *at; asm volatile("lea 2f(%%rip), %0; 1: ud2; .pushsection __bug_table, \"aw\"; 2: .long 1b - ., %c1 - ., %c2 - .; .word 7, 9; .popsection" : "=r" (at) : "i" ("format"), "i" (__FILE__)); return i + !at WARNS; }
int also_tells(int i) { void *at; asm volatile("lea 2f(%%rip), %0; 1: ud2; .pushsection __bug_table, \"aw\"; 2: .long 1b - ., %c1 - ., %c2 - .; .word 8, 9; .popsection" : "=r" (at) : "i" ("another"), "i" (__FILE__)); return i + !at TELLS; }
extern __attribute__((cold)) int unlikely(int);
__attribute__((cold, noinline)) int unlikely(int i) { return i + key_b; }
int split(int i) { if (i > key_a) return i * (unlikely(i) + unlikely(i + 1)); return i COLD; }
int (*pointer)(int);
NEW
int points(int i) { pointer = POINTED; return i; }
END
}

@test "livepatch: without a change, nothing is replaced" {
	kernel
	cut
	[ "$status" -eq 0 ]
	[ ! -s "$T/out/functions.h" ]
	[ -z "$(nm "$T/out/core.o")" ]
}

@test "livepatch: functions with an inlined copy of a changed function are replaced" {
	kernel
	cut -DINLINED=+1
	replaced 'user_one user_two'
	nm "$T/out/core.o" | grep -q ' T livepatch_user_one'
}

@test "livepatch: if a symbol occurs twice, the one of the file is used" {
	kernel
	cut -DINLINED=+1 -DUNTRACED=+1
	[ "$status" -eq 0 ]
	# core.o comes first.
	[ "$(grep -c ' twice$' "$T/symbols")" = 2 ]
	nm "$T/out/core.o" | grep -q 'U .klp.sym.vmlinux.helper,1$'
	nm "$T/out/core.o" | grep -q 'U .klp.sym.vmlinux.twice,1$'
	sed -i 's/twice\[i\] ^ 5/twice[i] ^ 6/' "$T/source/other.c"
	cut
	nm "$T/out/other.o" | grep -q 'U .klp.sym.vmlinux.twice,2$'
	replaced helper,2
}

@test "livepatch: a symbol that the kernel does not have is an error" {
	kernel
	cut -DKEYED=+nowhere '-DNEW=' -DKEY_NOWHERE
	[ "$status" -eq 1 ]
}

@test "livepatch: includes the static keys of replaced functions, and no others" {
	kernel
	cut -DKEYED=+1
	replaced keyed
	relocations core.o | grep -q 'klp.sym.vmlinux.key_a,1'
	[ -z "$(relocations core.o | grep key_b)" ]
	[ "$(readelf -SW "$T/out/core.o" | awk '$2 ~ /__jump_table/ || $3 == "__jump_table" { print $7 }')" = 000010 ]
}

@test "livepatch: functions that cannot be traced are copied, and their callers replaced" {
	kernel
	cut -DUNTRACED=+1
	replaced calls_untraced
	[[ $output == *"core.o: copied: untraced"* ]]
	nm "$T/out/core.o" | grep -qi ' T livepatch_untraced'
}

@test "livepatch: a caller of a copied function that is not replaced is an error" {
	sources "$T/source"
	echo 'int untraced(int); int forgotten(int i) { return untraced(i) + 1; }' >>"$T/source/other.c"
	kernel
	sed -i '/other.o/d' "$T/plan"
	cut -DUNTRACED=+1
	stops "the kernel's forgotten calls untraced, which is copied, not replaced; add its file to the plan (\"object\") or its name (\"keep\")"
	echo 'keep forgotten' >>"$T/plan"
	cut -DUNTRACED=+1
	[ "$status" -eq 0 ]
}

@test "livepatch: a pointer to a replaced function points to the kernel's function" {
	kernel
	cut -DPOINTED=user_one -DINLINED=+1
	[ "$status" -eq 0 ]
	relocations core.o | grep -q 'R_X86_64_32S.*klp.sym.vmlinux.user_one,1'
}

@test "livepatch: a pointer to a new function is an error" {
	kernel
	cut -DNEW='static int fresh(int i) { return i; }' -DPOINTED=fresh
	stops "core.o: the address of fresh, which is new, would be left in the kernel"
}

@test "livepatch: a pointer that the CPU may refuse to call (IBT) is an error" {
	FLAGS+=(-DSEALED -fcf-protection=branch)
	kernel
	cut -DPOINTED=user_two
	[ "$status" -eq 0 ]
	cut -DPOINTED=user_one
	stops "core.o: the address of user_one is taken, but the kernel has no pointer to it, so an indirect call may fault (IBT)"
}

@test "livepatch: a constant that the kernel patches at boot is an error" {
	kernel
	cut -DINLINED=+1
	[ "$status" -eq 0 ]
	cut -DCONSTANT=+1
	stops "core.o: .text.constant has an entry in runtime_ptr_constant, which modules do not support"
}

@test "livepatch: includes objtool's annotations of the code, relative to the section" {
	kernel
	cut -DINLINED=+1
	[ -z "$(relocations core.o | grep reachable)" ]
	cut -DWARNS=+1
	[ "$status" -eq 0 ]
	relocations core.o | grep -A 2 "'.rela.discard.reachable'" | grep -q ' \.text\.warns + '
}

@test "livepatch: includes table entries with the code that uses them" {
	kernel
	cut -DTELLS=+1
	replaced also_tells
	# It was the second entry, and is the only one in the module.
	[ "$(readelf -SW "$T/out/core.o" | awk '{ sub(/^ *\[ */, "") } $2 == "__bug_table" { print $6 }')" = 000010 ]
	nm "$T/out/core.o" | grep -q '^0* d entry\.1$'
	relocations core.o | grep -q 'R_X86_64_PC32.* entry\.1 - 4'
	strings "$T/out/core.o" | grep -qx another
}

@test "livepatch: a jump to the cold part of a function is relative to the section, as compiled" {
	kernel
	cut -DCOLD=+1
	replaced split
	nm "$T/out/core.o" | grep -q ' t livepatch_split.cold'
	relocations core.o | grep -q ' \.text\.unlikely\.split [-+] '
	[ -z "$(relocations core.o | grep 'livepatch_split.cold')" ]
}

# kallsyms ALIGNMENT OFFSETS: prints the symbols of a kernel with 1000 symbols and this table of offsets
kallsyms() {
	{
		echo '.section .text, "ax"; .globl _text; _text: .skip 4096, 0x90; .section .rodata, "a"'
		echo ".balign $1; .long 1000; .balign $1"
		awk 'BEGIN { for (i = 1000; i < 2000; i++) printf "n%d: .byte 6; .ascii \"Tf%d\"\n", i - 1000, i }'
		echo ".balign $1; .long 0, n256 - n0, n512 - n0, n768 - n0; .balign $1"
		awk 'BEGIN { for (i = 0; i < 256; i++) printf "t%d: .asciz \"%c\"\n", i, (i < 48 || (i > 57 && i < 65) || i > 122 || i == 92) ? "x" : i }'
		echo ".balign $1"
		awk 'BEGIN { for (i = 0; i < 256; i++) printf ".short t%d - t0\n", i }'
		echo ".balign $1; $2"
	} >"$T/kallsyms.s"
	gcc -c -o "$T/kallsyms.o" "$T/kallsyms.s"
	ld -e 0 -Ttext=0xffffffff81000000 -o "$T/kernel" "$T/kallsyms.o"
	"$TOOLS/symbols" "$T/kernel"
}

@test "livepatch: reads both formats of kallsyms" {
	kallsyms 8 '.set i, 0; .rept 1000; .long -1 - i; .set i, i + 4; .endr; .balign 8; .quad _text' >"$T/absolute"
	[ "$(wc -l <"$T/absolute")" -eq 1000 ]
	[ "$(sed -n 2p "$T/absolute")" = "ffffffff81000004 T f1001" ]
	kallsyms 4 '.set i, 0; .rept 1000; .long _text - . + i; .set i, i + 4; .endr' >"$T/relative"
	cmp "$T/absolute" "$T/relative"
}

@test "livepatch: supports functions with padding in front of them" {
	FLAGS+=('-fpatchable-function-entry=16,16')
	kernel
	cut -DINLINED=+1
	replaced 'user_one user_two'
	[ -z "$(readelf -SW "$T/out/core.o" | grep __patchable)" ]
}

@test "livepatch: symbols exported in a namespace are found by position" {
	kernel
	printf '0x1\tother\tvmlinux\tEXPORT_SYMBOL_GPL\t\n' >>"$T/symvers"
	cut -DINLINED=+1
	nm "$T/out/core.o" | grep -q ' U other$'
	sed -i 's/^\(0x1\tother.*\)/\1SPACE/' "$T/symvers"
	cut -DINLINED=+1
	nm "$T/out/core.o" | grep -q ' U .klp.sym.vmlinux.other,1$'
}

@test "livepatch: another compiler is an error" {
	kernel
	compile plain -Os
	cut -DKEYED=+1
	[ "$status" -eq 1 ]
	[[ $output == "cut: core.o: "*" is not the same as in the kernel; compile with the kernel's compiler, source and configuration" ]]
}

@test "livepatch: another variable of the same name is an error" {
	kernel
	# The instructions are the same, but use the other variable.
	sed -i 's/key_a, key_b/key_b, key_a/' "$T/source/core.c"
	compile plain
	cut -DKEYED=+1
	[ "$status" -eq 1 ]
}

@test "livepatch: a static variable of a function stays the kernel's" {
	kernel
	sed -i 's/return count += i/return count += i + 1/' "$T/source/core.c"
	cut
	[ "$status" -eq 0 ]
	nm "$T/out/core.o" | grep -q 'U .klp.sym.vmlinux.count.[0-9]*,1$'
	[ -z "$(nm "$T/out/core.o" | grep ' [bd] count')" ]
}

@test "livepatch: seal creates one livepatch relocation for each symbol with a position, before all others" {
	kernel
	cut -DINLINED=+1
	sed -i 's/twice\[i & 3\]/twice[i \& 3] + twice[1]/' "$T/source/core.c"
	cut -DINLINED=+1
	[ "$(relocations core.o | grep -c 'klp.sym.vmlinux.twice,1')" -ge 2 ]
	"$TOOLS/seal" "$T/out/core.o"
	readelf -rW "$T/out/core.o" | awk '/^Relocation section/ { section = $3 } / R_X86_64_64 .*klp.sym/ { print section, $5 }' >"$T/klp"
	[ "$(awk '{ print $1 }' "$T/klp" | uniq)" = "'.klp.rela.vmlinux..livepatch.symbols'" ]
	[ "$(sort -u "$T/klp" | wc -l)" -eq "$(wc -l <"$T/klp")" ]
	[ "$(readelf -sW "$T/out/core.o" | grep -c 'OS \[0xff20\]')" -eq "$(wc -l <"$T/klp")" ]
	[[ $(readelf -SW "$T/out/core.o" | grep -m 1 ' RELA ') == *".klp.rela.vmlinux..livepatch.symbols"* ]]
	readelf -rW "$T/out/core.o" | grep -q '__fentry__'
}

@test "livepatch: bad input is reported in one line" {
	kernel
	echo nonsense >"$T/plan"
	cut
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 1 ]
	echo 'no object' >"$T/out/core.o"
	run -1 "$TOOLS/seal" "$T/out/core.o"
	[ "$output" = "seal: $T/out/core.o: not an object file for x86-64" ]
	run -1 "$TOOLS/symbols" "$T/plan"
	[ "${#lines[@]}" -eq 1 ]
}

@test "livepatch: sign signs a sealed module" {
	headers=$(compgen -G '/lib/modules/*/build/scripts/sign-file' | head -n 1)
	[ -n "$headers" ] || skip "no kernel headers are installed: linux-headers-amd64"
	headers=${headers%/scripts/sign-file}
	kernel
	cut -DINLINED=+1
	printf 'license=GPL\0' >"$T/modinfo"
	objcopy --add-section .modinfo="$T/modinfo" "$T/out/core.o" "$T/live.ko"
	"$TOOLS/seal" "$T/live.ko"
	openssl req -new -x509 -newkey rsa:2048 -nodes -days 1 -subj "/CN=me for tests/" \
		-keyout "$T/key" -out "$T/cert" 2>/dev/null
	KEY=$T/key CERT=$T/cert "$SCRIPTS/livepatch/sign" "$headers" "$T/live.ko"
	[ "$(/sbin/modinfo -F signer "$T/live.ko")" = "me for tests" ]
	readelf -SW "$T/live.ko" | grep -q '\.klp\.rela\.vmlinux\.'
	# Each later step removes the signature.
	"$TOOLS/seal" "$T/live.ko"
	[ -z "$(/sbin/modinfo -F signer "$T/live.ko")" ]

	KEY=$T/key CERT='' run "$SCRIPTS/livepatch/sign" "$headers" "$T/live.ko"
	one_line "sign: KEY= and CERT= must both name a file: *"
	KEY=$T/cert CERT=$T/cert run "$SCRIPTS/livepatch/sign" "$headers" "$T/live.ko"
	one_line "sign: cannot sign with $T/cert and $T/cert: *"
}

@test "livepatch: build rejects bad arguments with one line" {
	run "$SCRIPTS/livepatch/build" 5.10.0-30-amd64
	one_line "build: no live patch for Linux 5.10 (available: 6.1 6.12 7.3)"
	run "$SCRIPTS/livepatch/build" vmlinuz
	one_line "build: not a kernel name as uname -r prints it: vmlinuz"
	KEY=$T/none run "$SCRIPTS/livepatch/build" 6.1.0-56-amd64
	one_line "build: KEY= and CERT= must both name a file: *"
}

@test "livepatch: recognises kernels for another Debian release by their name" {
	. "$SCRIPTS/lib.sh"
	version=$(. /etc/os-release && echo "$VERSION_ID")
	[ -z "$(other_debian "6.12.117+deb$version-amd64")" ]
	[ -z "$(other_debian 6.1.0-56-amd64)" ]
	[ "$(other_debian 6.12.117+deb99-cloud-amd64)" = 99 ]
	run "$SCRIPTS/debian" 13
	one_line "usage: debian VERSION COMMAND..."
	run "$SCRIPTS/livepatch/build" 6.12.117+deb99-amd64
	one_line "debian: no such Debian: 99 (available: 12 13)"
	[ "$(id -u)" -ne 0 ] || BUILD=/var/tmp/none run "$SCRIPTS/debian" 13 true
	[ "$(id -u)" -ne 0 ] || one_line "debian: /var, which contains *, is replaced by that of Debian 13; move them"
	[ ! -e /var/tmp/none ]
}

@test "livepatch: soak, bench, mutants, peers and try-deb reject bad arguments with one line" {
	for verb in soak bench mutants peers; do
		run "$SCRIPTS/prove/$verb" 6.1.0-56-amd64
		one_line "$verb: run make verify-live KERNEL=6.1.0-56-amd64 first*"
		run "$SCRIPTS/prove/$verb" 9.9.0-1-amd64
		one_line "$verb: no such base: 9.9 *"
		ARCH=arm64 run "$SCRIPTS/prove/$verb" 6.1.0-56-amd64
		one_line "$verb: ARCH=arm64: this command supports only x86; leave out ARCH"
	done
	mkdir -p "$BUILD/livepatch/6.1.0-56-amd64/module"
	echo '#define BUILD "Debian 6.1.9-1 of today"' >"$BUILD/livepatch/6.1.0-56-amd64/module/build.h"
	touch "$BUILD/livepatch/6.1.0-56-amd64/perf_bpf_filter_livepatch.ko"
	for verb in soak bench peers; do
		run "$SCRIPTS/prove/$verb" 6.1.0-56-amd64
		one_line "$verb: *.ko was built from earlier patches; run make verify-live KERNEL=6.1.0-56-amd64 first"
	done
	run "$SCRIPTS/prove/soak" 6.1.0-56-amd64 many
	one_line "soak: N must be a number of at least 1, not 'many'"
	run "$SCRIPTS/prove/bench" --check 6.1.0-56-amd64
	one_line "bench: no such base: 6.1.0-56-amd64 *"
	run "$SCRIPTS/prove/mutants" 6.1.0-56-amd64 none
	one_line "mutants: no such mutant: none (see */patches/mutants/live)"
	run "$SCRIPTS/livepatch/try-deb" 6.1.0-56-amd64
	one_line "usage: try-deb *OLD NEW (*NEW)"
}

@test "livepatch: the results of the kernel's own selftests, and a test that names no result has failed" {
	run -0 env -C "$SCRIPTS" python3 -B -c 'from lab import klp
print(klp.results_in("""== test-livepatch.sh
TEST: basic function patching ... ok
TEST: atomic replace livepatch ... ERROR: Expecting three modules listed, found 4
== test-ftrace.sh
TEST: livepatch interaction with ftrace_enabled sysctl ... SKIP: failed to set kernel.ftrace_enabled = 0
TEST: hangs ... """))'
	[ "$output" = "{'basic-function-patching': 'PASS', 'atomic-replace-livepatch': 'FAIL', 'livepatch-interaction-with-ftrace_enabled-sysctl': 'NONE', 'hangs': 'FAIL'}" ]
}

# saw PART RESULT...: the output of probe and suite in that part, for the tests races.test1, races.test2, ...
saw() {
	local part=$1 number=0 pass=0 fail=0 effect=delivered limit=consumed
	shift
	[ "$part" != loaded ] || effect=suppressed limit=untouched
	echo "== $part"
	probe_of sample=suppressed wakeup=suppressed sigio=$effect setsig=$effect sigtrap=$effect limit=$limit hup=$effect / \
		continue=works step=works handler=works
	printf 'TAP version 13\n1..%d\n' $#
	for result; do
		number=$((number + 1))
		[ "$result" = ok ] && pass=$((pass + 1)) || fail=$((fail + 1))
		echo "$result $number races.test$number"
	done
	printf '# Totals: pass:%d fail:%d xfail:0 xpass:0 skip:0 error:0\n' $pass $fail
}

@test "livepatch: verify compares the results before, with and after the live patch with the lists" {
	# The lists are this repository's; none of their tests is in the output.
	mkdir "$T/out"
	echo '{"outcome": "passed"}' >"$T/out/boot.json"
	fake_suite "$T/selftests/perf_bpf_filter" races.test1=C1
	{ saw before ok; saw loaded ok; saw after ok; echo "== end"; } >"$T/out/output.log"
	judges() {
		run "$SCRIPTS/verify" --judge "$T/out" 6.1.0-56-amd64 "$@"
		tap=$(cat "$BUILD/tests-6.1.0-56-amd64.tap")
	}
	judges 'races.test*'
	[ "$status" -eq 0 ]
	judges
	[ "$status" -eq 1 ]
	[[ $output =~ the\ sigio\ +delivered\ +suppressed\ +delivered ]]
	[[ $output == *"WRONG  loaded: "*": is listed as failing, but does not exist"* ]]

	{ saw before ok; saw loaded ok; saw after ok; echo "== end"; } >"$T/out/output.log"
	fake_suite "$T/selftests/perf_bpf_filter" races.test1=C1 races.test2=C1
	judges 'races.test*'
	[[ $status -eq 1 && $tap == *"not ok "*" live patch: loaded: did not run 1 of the suite's 2 tests: races.test2"* ]]
	{ saw before ok ok; saw loaded ok 'not ok'; saw after ok ok; echo "== end"; } >"$T/out/output.log"
	judges 'races.test*'
	[ "$status" -eq 1 ]
	[ "$(grep -c '^not ok' <<<"$tap")" -eq 1 ]
	[[ $tap == *"not ok 4 live patch: loaded: races.test2: fails, but is not listed as failing"* ]]

	# The live patch was not loaded, or not completely unloaded.
	fake_suite "$T/selftests/perf_bpf_filter" races.test1=C1
	{ saw before ok; saw before ok | sed 's/before/loaded/'; saw after ok; echo "== end"; } >"$T/out/output.log"
	judges 'races.test*'
	[[ $status -eq 1 && $tap == *"not ok "*" live patch: loaded: "*"the probe reports delivered for sigio"* ]]
	{ saw before ok; saw loaded ok; saw loaded ok | sed 's/loaded/after/'; echo "== end"; } >"$T/out/output.log"
	judges 'races.test*'
	[[ $status -eq 1 && $tap == *"not ok "*" live patch: after: the probe does not print the same as before"* ]]

	# The guest was lost, or a part of its output.
	{ saw before ok; saw loaded ok; } >"$T/out/output.log"
	judges 'races.test*'
	one_line "verify: the guest ended early, or printed a part twice; see $T/out"
	{ saw before ok; saw loaded 'not ok'; saw loaded ok; saw after ok; echo "== end"; } >"$T/out/output.log"
	judges 'races.test*'
	one_line "verify: the guest ended early, or printed a part twice; see $T/out"
	{ saw before ok; saw loaded ok; saw after ok; echo "== end"; } >"$T/out/output.log"
	echo '{"outcome": "splat"}' >"$T/out/boot.json"
	judges 'races.test*'
	one_line "verify: the guest did not end well; see $T/out/boot.json"
	echo '{"outcome": "passed"}' >"$T/out/boot.json"
	{ saw before ok; saw loaded ok | head -n 4; saw after ok; echo "== end"; } >"$T/out/output.log"
	judges 'races.test*'
	[[ $status -eq 1 && $tap == *"not ok "*" live patch: loaded: 1 tests planned, 0 results"* ]]
}

@test "livepatch: matrix prints two rows for results of verify-live, after the bases" {
	fake_suite "$BUILD/linux-6.1.9-1/selftests/perf_bpf_filter" a=C1
	result() {
		cat >"$BUILD/results-$1.json" <<-END
			{"verdict": "pass", "of": "$2", "deadly": [],
			 "stock": {"logs": "$BUILD/linux-6.1.9-1/x", "kernel": "$3", "tests": {"a": "fail"}, "reasons": {}},
			 "patched": {"logs": "$BUILD/linux-6.1.9-1/x", "tests": {"a": "pass"}, "reasons": {}}}
		END
	}
	result 6.1 "$(. "$SCRIPTS/lib.sh"; lab subject 6.1)" 6.1.9
	result 6.1.0-56-amd64 "$(cd "$SCRIPTS" && python3 -Bc 'from lab import base; print(base.Live("6.1.0-56-amd64").subject())')" 6.1.0-56-amd64
	run -0 "$SCRIPTS/matrix"
	[[ ${lines[0]} =~ ^\ +C1$ ]]
	[[ ${lines[1]} =~ ^6.1\ stock\ +0/1$ ]]
	[[ ${lines[2]} =~ ^6.1\ series\ +1/1$ ]]
	[[ ${lines[3]} =~ ^6.1.0-56-amd64\ stock\ +0/1$ ]]
	[[ ${lines[4]} =~ ^6.1.0-56-amd64\ live\ +1/1$ ]]
	# Do not count the lines about bases that are left out.
	[ "$(grep -v '^matrix: ' <<<"$output" | grep -c .)" -eq 6 ]
	result 6.1.0-56-amd64 other 6.1.0-56-amd64
	run -1 "$SCRIPTS/matrix" 6.1.0-56-amd64
	[[ $output == *"run make verify-live KERNEL=6.1.0-56-amd64 again"* ]]
}
