#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
# Errors that cut (scripts/livepatch/cut.cc) must detect, and symbols that it must not mistake for the
# kernel's. Each test also cuts a valid change.
load common
load cutter

# shellcheck disable=SC2034 # setup_file() uses it
tools=(cut)
FLAGS+=(-fno-stack-protector -fno-jump-tables -fno-optimize-sibling-calls)

# core LINE...: writes core.c from standard input, and other.c with other() and these lines.
core() {
	mkdir -p "$T/source"
	{ echo 'extern int other(int);'; cat; } >"$T/source/core.c"
	printf '%s\n' 'int other(int x) { return x ^ 5; }' "$@" >"$T/source/other.c"
}

# change EXPRESSION...: changes core.c with sed, and cuts out the difference
change() {
	cp "$T/source/core.c" "$T/before.c"
	printf '%s\n' "$@" >"$T/sed"
	sed -i -f "$T/sed" "$T/source/core.c"
	! cmp -s "$T/source/core.c" "$T/before.c" || false
	cut
	mv "$T/before.c" "$T/source/core.c"
}

@test "cut: changed data is an error" {
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
	stops 'core.o: my_ops differs (byte 16), but the live patch does not change data; to accept that, add "keep my_ops" and the reason to the plan'
	change 's/\.flags = 1/.close = my_close, &/'
	stops 'core.o: my_ops differs (it points to my_close), but the live patch does not change data; to accept that, add "keep my_ops" and the reason to the plan'
	change 's/{ 1, 2/{ 9, 2/'
	stops 'core.o: table differs (byte 0), but the live patch does not change data; to accept that, add "keep table" and the reason to the plan'
	echo 'keep table' >>"$T/plan"
	change 's/{ 1, 2/{ 9, 2/' 's/x) \* 3/x) * 4/'
	replaced changed
}

@test "cut: a table that the compiler generates for a switch belongs to the function" {
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

@test "cut: a new entry in a table that the kernel's linker collects is an error" {
	core <<-'END'
	int changed(int x) { return other(x) * 3; }
	asm(".pushsection __setup, \"a\"; .quad changed; .popsection");
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
	change 's/quad changed/&, other/'
	stops 'core.o: section __setup differs, but the live patch does not change data; to accept that, add "keep __setup" and the reason to the plan'
}

@test "cut: a new static variable of a function is not mistaken for another function's of the same name" {
	core <<-'END'
	int first(int x) { static int once; once += x; return other(once); }
	int second(int x) { return other(x) * 3; }
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced second
	change 's/once += x;/once += x + 1;/'
	replaced first
	nm "$T/out/core.o" | grep -q 'U .klp.sym.vmlinux.once.[0-9]*,1$'
	change 's/second(int x) { /&static int once; once += x * 2; /'
	output=${output/once.1/once.0}
	stops "core.o: once.0 cannot be matched: functions of the patched source have 2 static variables of this name, and the kernel has 1; rename the new ones"
	change 's/second(int x) { /&static int twice; twice += x * 2; /'
	replaced second
	nm "$T/out/core.o" | grep -q ' b twice\.[0-9]*$'
}

@test "cut: a new static variable of a function is not mistaken for the file's of the same name" {
	core <<-'END'
	static int limit = 3;
	int first(int x) { limit += x; return other(limit); }
	int second(int x) { return other(x) * 3; }
	END
	kernel
	change 's/limit += x/limit += x + 1/'
	replaced first
	nm "$T/out/core.o" | grep -q 'U .klp.sym.vmlinux.limit,1$'
	change 's/second(int x) { /&static int limit = 100; limit += x * 2; /'
	replaced second
	nm "$T/out/core.o" | grep -q ' d limit\.[0-9]*$'
	[ -z "$(nm "$T/out/core.o" | grep klp.sym.vmlinux.limit)" ]
}

@test "cut: a variable of another size is an error" {
	core <<-'END'
	static int list[4];
	int first(int x) { list[x & 3] += x; return other(list[0]); }
	END
	kernel
	change 's/+= x;/+= x + 1;/'
	replaced first
	change 's/list\[4\]/list[8]/' 's/x & 3/x \& 7/'
	stops 'core.o: list differs (size), but the live patch does not change data; to accept that, add "keep list" and the reason to the plan'
	echo 'keep list' >>"$T/plan"
	change 's/list\[4\]/list[8]/' 's/x & 3/x \& 7/'
	stops "core.o: list does not have the size and type of the kernel's variable"
}

@test "cut: a static function is not mistaken for an exported function of the same name" {
	core 'int helper(int x) { return x * 77; }' <<-'END'
	static __attribute__((noinline)) int helper(int x) { return other(x + 1); }
	int user(int x) { return helper(x) + 1; }
	int second(int x) { return helper(x) + 2; }
	END
	kernel
	printf '0x1\t%s\tvmlinux\tEXPORT_SYMBOL\t\n' helper other >>"$T/symvers"
	# core.o comes first.
	change 's/helper(x) + 2/helper(x) + 3/'
	replaced second
	[ "$(nm -u "$T/out/core.o" | grep helper)" = '                 U .klp.sym.vmlinux.helper,1' ]
	change 's/helper(x) + 2/other(x) + 3/'
	replaced second
	nm -u "$T/out/core.o" | grep -q ' U other$'
}

@test "cut: a static function of another file is not mistaken for a global one" {
	core 'static __attribute__((noinline)) int hidden(int x) { return x * 31; }' \
		'int seen(int x) { return hidden(x) + 1; }' <<-'END'
	extern int hidden(int), seen(int);
	int changed(int x) { return other(x) * 3; }
	END
	kernel
	change 's/x) \* 3/x) * 3 + seen(x)/'
	replaced changed
	nm -u "$T/out/core.o" | grep -q ' U .klp.sym.vmlinux.seen,1$'
	change 's/x) \* 3/x) * 3 + hidden(x)/'
	stops "core.o: the address of hidden is unknown: the kernel's code in this file does not refer to it, and there is not exactly one global symbol of this name"
}

@test "cut: a pointer to a copied function is an error" {
	core <<-'END'
	struct work { void (*fn)(int); int x; };
	static __attribute__((noinline)) void my_work(int x) { other(x + 1); }
	int start(struct work *w) { w->fn = my_work; return other(w->x); }
	int direct(int x) { my_work(x); return other(x); }
	END
	kernel
	change 's/x + 1)/x + 1000)/'
	replaced my_work
	echo 'copy my_work' >>"$T/plan"
	change 's/x + 1)/x + 1000)/'
	stops "core.o: the address of my_work is taken, but my_work is copied: the pointer would lead to the kernel's unpatched function"
	change 's/x + 1)/x + 1000)/' 's/w->fn = my_work/w->fn = 0/'
	replaced 'direct start'
}

@test "cut: a copied function must not be exported, and nothing else in the kernel may point to it" {
	core 'int api(int); struct ops { int (*f)(int); };' <<-'END'
	int __attribute__((noinline)) api(int x) { return other(x + 1); }
	int user(int x) { return api(x) + 1; }
	END
	kernel
	sed -i '/other/d' "$T/plan"
	echo 'copy api' >>"$T/plan"
	change 's/x + 1)/x + 1000)/'
	replaced user
	for space in '' MINE; do
		cp "$T/symvers" "$T/symvers.before"
		printf '0x1\tapi\tvmlinux\tEXPORT_SYMBOL_GPL\t%s\n' "$space" >>"$T/symvers"
		change 's/x + 1)/x + 1000)/'
		stops "core.o: api is copied, but it is exported: modules would still call the kernel's function"
		mv "$T/symvers.before" "$T/symvers"
	done
	cp "$T/source/other.c" "$T/other.c"
	for line in 'struct ops ops = { api };' 'void fill(struct ops *o) { o->f = api; }' 'void *tell(void) { void *at; asm("lea api(%%rip), %0" : "=r" (at)); return at; }'; do
		{ cat "$T/other.c"; echo "$line"; } >"$T/source/other.c"
		kernel
		sed -i '/other/d' "$T/plan"
		echo 'copy api' >>"$T/plan"
		change 's/x + 1)/x + 1000)/'
		[ "$status" -eq 1 ]
		[[ $output =~ ^"cut: the kernel's "(ops|fill|tell)' points to api, which is copied, not replaced; add its file to the plan ("object") or its name ("keep")'$ ]]
		echo "keep ${BASH_REMATCH[1]}" >>"$T/plan"
		change 's/x + 1)/x + 1000)/'
		replaced user
	done
}

@test "cut: callers of a copied function are identified by address, not by name" {
	core 'int api(int);' 'static __attribute__((noinline, used)) int user(int x) { return api(x) + 2; }' <<-'END'
	int __attribute__((noinline)) api(int x) { return other(x + 1); }
	int user(int x) { return api(x) + 1; }
	END
	kernel
	sed -i '/other/d' "$T/plan"
	change 's/x + 1)/x + 1000)/'
	replaced api
	echo 'copy api' >>"$T/plan"
	change 's/x + 1)/x + 1000)/'
	stops "the kernel's user calls api, which is copied, not replaced; add its file to the plan (\"object\") or its name (\"keep\")"
}

@test "cut: a jump to a copied or new function is an error" {
	core <<-'END'
	static __attribute__((noinline, noclone)) int copied(int x) { return other(x) * 3; }
	int first(int x) { return copied(x + 1); }
	int second(int x) { return x ? other(x) * 5 : copied(x + 2) + 1; }
	END
	FLAGS+=(-foptimize-sibling-calls)
	kernel
	echo 'copy copied' >>"$T/plan"
	change 's/x) \* 3/x) * 4/'
	stops 'core.o: first ends with a jump to copied: the kernel would not see a task that sleeps there; add barrier() after the call, or "atomic copied" and the reason to the plan'
	change 's/x) \* 3/x) * 4/' 's/return copied(x + 1);/x = copied(x + 1); asm volatile("" ::: "memory"); return x;/'
	replaced "first second"
	change 's/^int first.*/__attribute__((noinline)) int added(int x) { return other(x) - 7; } int first(int x) { return added(x + 1); }/'
	stops 'core.o: first ends with a jump to added: the kernel would not see a task that sleeps there; add barrier() after the call, or "atomic added" and the reason to the plan'
	echo 'atomic added' >>"$T/plan"
	change 's/^int first.*/__attribute__((noinline)) int added(int x) { return other(x) - 7; } int first(int x) { return added(x + 1); }/'
	replaced "first second"
}

@test "cut: an entry in an unknown table is an error" {
	core <<-'END'
	int changed(int x) { asm volatile("1: nop; .pushsection __fixups, \"a\"; .long 1b - ., 7; .popsection"); return other(x) * 3; }
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	stops 'core.o: section __fixups has an entry for a place in changed, and cut does not know this table'
	sed -i 's/__fixups/.smp_locks/; s/, 7;/;/' "$T/source/core.c"
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
}

@test "cut: an unknown relocation type is an error" {
	core <<-'END'
	int changed(int x) { return other(x) * 3; }
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
	change 's/return/asm("mov other@GOTPCREL(%%rip), %%rax" ::: "rax"); &/'
	[ "$status" -eq 1 ]
	[[ $output == "cut: $T/patched/core.o: section .text.changed has a relocation of unknown type "* ]]
}

# kernel_with EXPRESSION: compiles PLAIN and STOCK from other source than the kernel's
kernel_with() {
	sed -i "$1" "$T/source/core.c"
	compile plain
	compile_stock
}

@test "cut: data, strings and alternatives that differ from the kernel's are errors" {
	core <<-'END'
	extern int tell(const char *);
	__attribute__((noinline)) int tell(const char *text) { return other(*text); }
	static int table[] = { 1, 2, 3, 4 };
	int look(unsigned i) { return table[i & 3]++; }
	int says(int x) { return tell("first text"); }
	int alters(int x) { asm volatile("661: nop; nop; 662: .pushsection .altinstructions, \"a\"; .long 661b - ., 663f - .; .word 7; .byte 2, 664f - 663f; .popsection; .pushsection .altinstr_replacement, \"ax\"; 663: xor %%eax, %%eax; 664: .popsection" ::: "eax"); return x; }
	int changed(int x) { return other(x) * 3; }
	END
	cp "$T/source/core.c" "$T/core.c"
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
	kernel_with 's/{ 1, 2/{ 9, 2/'
	change 's/x) \* 3/x) * 4/'
	stops "core.o: table is not the same as in the kernel; compile with the kernel's compiler, source and configuration"
	cp "$T/core.c" "$T/source/"
	kernel_with 's/first text/other text/'
	change 's/x) \* 3/x) * 4/'
	stops "core.o: says refers to \"other text\", but in the kernel it does not"
	cp "$T/core.c" "$T/source/"
	kernel_with 's/word 7/word 8/'
	change 's/x) \* 3/x) * 4/'
	stops "core.o: .altinstructions is not the same as in the kernel; compile with the kernel's compiler, source and configuration"
	cp "$T/core.c" "$T/source/"
	kernel_with 's/xor %%eax/sub %%eax/'
	change 's/x) \* 3/x) * 4/'
	stops "core.o: .altinstr_replacement is not the same as in the kernel; compile with the kernel's compiler, source and configuration"
}

@test "cut: only UBSAN's data may name a source file in another folder than the kernel's" {
	FLAGS+=(-fsanitize=bounds)
	core 'void __ubsan_handle_out_of_bounds(void *data, void *index) { }' <<-'END'
	#line 1 "/build/linux/kernel/core.c"
	__attribute__((noinline)) int tell(const char *text) { return other(*text); }
	static int table[4];
	int look(unsigned i) { return table[i]++; }
	int says(void) { return tell("/build/linux/kernel/core.c"); }
	int changed(int x) { return other(x) * 3; }
	END
	cp "$T/source/core.c" "$T/core.c"
	kernel
	kernel_with 's,^#line 1 "/build/linux,#line 1 "/home/me,'
	change 's/x) \* 3/x) * 4/'
	replaced changed
	kernel_with 's,^#line 1 .*/core,#line 1 "/home/me/kernel/more,'
	change 's/x) \* 3/x) * 4/'
	[ "$status" -eq 1 ]
	[[ $output == 'cut: core.o: '*' refers to "/home/me/kernel/more.c", but in the kernel it does not' ]]
	cp "$T/core.c" "$T/source/"
	kernel_with 's,("/build/linux,("/home/me,'
	change 's/x) \* 3/x) * 4/'
	stops 'core.o: says refers to "/home/me/kernel/core.c", but in the kernel it does not'
}

@test "cut: a function that -ffunction-sections changes is an error" {
	core 'int reg(int (*f)(int)) { return f(3); }' <<-'END'
	extern int reg(int (*)(int));
	static int inl(int x) { return other(x) * 3; }
	int a(int x) { return inl(x) + 1; }
	int b(void) { return reg(inl); }
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced 'a inl'
	compile stock "${SPLIT[@]}" -fno-inline
	FLAGS+=(-fno-inline)
	change 's/x) \* 3/x) * 4/'
	[ "$status" -eq 1 ]
	[[ $output == "cut: core.o: a differs if compiled with -ffunction-sections ("*"), so cut cannot tell what the kernel inlines" ]]
	# The same if the aligned build inlines as the split one does, and the kernel does not.
	compile_stock
	change 's/x) \* 3/x) * 4/'
	[ "$status" -eq 1 ]
	[[ $output == "cut: core.o: a differs if compiled with -ffunction-sections ("*"), so cut cannot tell what the kernel inlines" ]]
}

@test "cut: a function may differ in the padding before an aligned loop, and in nothing else" {
	FLAGS+=(-falign-loops=64)
	core <<-'END'
	int first(int x) { return other(x) + 1; }
	int loops(int *at, int n) { int sum = other(n); for (int i = 0; i < n; i++) sum += other(at[i]); return sum; }
	int changed(int x) { return other(x) * 3; }
	END
	kernel
	change 's/x) \* 3/x) * 4/'
	replaced changed
	sed -i 's/sum += /sum ^= /' "$T/source/core.c"
	compile stock "${SPLIT[@]}"
	change 's/x) \* 3/x) * 4/'
	[ "$status" -eq 1 ]
	[[ $output == "cut: core.o: loops differs if compiled with -ffunction-sections ("*"), so cut cannot tell what the kernel inlines" ]]
}

@test "cut: a changed source file that is not in the plan is an error" {
	core <<-'END'
	int changed(int x) { return other(x) * 3; }
	END
	kernel
	mkdir -p "$T"/{stock,patched}/{kernel,arch/arm64}
	for dir in stock patched; do
		for file in core.c kernel/third.c arch/arm64/x.c head.h; do
			echo "/* $dir */" >"$T/$dir/$file"
		done
	done
	change 's/x) \* 3/x) * 4/'
	stops 'kernel/third.c: the patches change this file, but the plan does not list it; add "object" or "ignore"'
	echo 'ignore kernel/third.c' >>"$T/plan"
	change 's/x) \* 3/x) * 4/'
	replaced changed
	rm "$T/stock/kernel/third.c"
	sed -i '/third/d' "$T/plan"
	change 's/x) \* 3/x) * 4/'
	stops 'kernel/third.c: the patches change this file, but the plan does not list it; add "object" or "ignore"'
}
