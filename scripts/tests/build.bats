#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

setup() {
	set_up
	fake_tree "$T/tree"
	printf '# a comment\nCONFIG_ONE=y\nCONFIG_TWO=y\n' >"$T/fragment"
	export FRAGMENT=$T/fragment
}

@test "build: prints the path of the image on stdout, the steps on stderr" {
	run -0 bash -c "'$SCRIPTS/build' '$T/tree' 2>'$T/steps'"
	[ "$output" = "$T/tree/obj/arch/x86/boot/bzImage" ]
	grep -q 'bzImage: Linux 6.1.9, 1 objects' "$T/steps"
}

@test "build: configures again only if the fragment has changed" {
	run "$SCRIPTS/build" "$T/tree"
	[[ $output == *configuration* ]]
	run "$SCRIPTS/build" "$T/tree"
	[[ $output != *configuration* ]]
	sed -i /TWO/d "$T/fragment"
	run "$SCRIPTS/build" "$T/tree"
	[[ $output == *configuration* ]]
}

@test "build: a line that did not take effect is an error, also the next time" {
	export FAKE_LOST=CONFIG_TWO
	for _ in 1 2; do
		run -1 "$SCRIPTS/build" "$T/tree"
		[[ ${lines[-1]} == "build: $T/fragment: did not survive configuration on Linux 6.1.9: CONFIG_TWO=y "* ]]
	done
}

@test "build: an option that is on but must be off is an error" {
	echo CONFIG_THREE=n >>"$T/fragment"
	sed -i 's/^> grep.*/> sed s,=n,=y, $(KCONFIG_ALLCONFIG) >$(O)\/.config/' "$T/tree/Makefile"
	run "$SCRIPTS/build" "$T/tree"
	[[ ${lines[-1]} == *": CONFIG_THREE=n "* ]]
}

@test "build: after an error, prints the last lines and the path of the log" {
	export FAKE_ERROR="disk quota exceeded"
	run -1 "$SCRIPTS/build" "$T/tree"
	[[ $output == *"core.c:1: error: disk quota exceeded"* ]]
	[[ ${lines[-1]} == "build: $T/tree: bzImage failed; the whole log is $T/tree/obj/build.log" ]]
}

@test "build: builds the PMU for guests if the kernel supports modules" {
	for modules in n y; do
		echo "CONFIG_MODULES=$modules" >>"$T/fragment"
		run -0 "$SCRIPTS/build" "$T/tree"
		code=0
		[ -e "$T/tree/obj/perf_bpf_pmu/perf_bpf_pmu.ko" ] || code=1
		[ $modules$code = n1 ] || [ $modules$code = y0 ]
		sed -i /MODULES/d "$T/fragment"
	done
}

@test "build: in ccache's depend mode, the image is not that of an older build" {
	command -v ccache >/dev/null || skip "no ccache"
	export CCACHE_DIR=$T/ccache CCACHE_CONFIGPATH=$T/ccache.conf
	echo "depend_mode = true" >"$T/ccache.conf"
	cat >>"$T/tree/Makefile" <<-'END'
	bzImage: piggy
	piggy:
	> @cp kernel/core.c $(O)/vmlinux.bin.gz
	> @echo '.incbin "$(O)/vmlinux.bin.gz"' >$(O)/piggy.S
	> @$(CC) -Wp,-MMD,$(O)/piggy.d -c -o $(O)/piggy.o $(O)/piggy.S
	END
	for line in one two; do
		sed -i "1s/.*/int line_$line;/" "$T/tree/kernel/core.c"
		run -0 "$SCRIPTS/build" "$T/tree"
		grep -aq "line_$line" "$T/tree/obj/piggy.o"
	done
}

@test "build: a folder that is no kernel tree and a missing fragment are refused" {
	run "$SCRIPTS/build" "$T"
	one_line "build: $T is not a kernel tree *"
	FRAGMENT=$T/none run "$SCRIPTS/build" "$T/tree"
	one_line "build: no such file: $T/none"
	run "$SCRIPTS/build"
	one_line "usage: *"
}

@test "build: leaves out lines for other versions and architectures, and the comments that mark them" {
	cat >"$T/fragment" <<-END
	CONFIG_OLD=y # before 6.1
	CONFIG_NOT_YET=y # from 6.2
	CONFIG_BOTH=y	# from 5.12 before 6.10
	CONFIG_NOW=y # from 6.1
	CONFIG_ELSEWHERE=y # on arm64
	CONFIG_HERE=y # from 6.1 on x86
	CONFIG_TEXT="a # from 6.2"
	CONFIG_ALL=y
	END
	"$SCRIPTS/build" "$T/tree"
	[ "$(cat "$T/tree/obj/.config")" = $'CONFIG_BOTH=y\nCONFIG_NOW=y\nCONFIG_HERE=y\nCONFIG_TEXT="a # from 6.2"\nCONFIG_ALL=y' ]
	export FAKE_LOST=CONFIG_NOW
	touch "$T/fragment" && sed -i /ALL/d "$T/fragment"
	run "$SCRIPTS/build" "$T/tree"
	[[ ${lines[-1]} == *": CONFIG_NOW=y "* ]]
}

@test "build: an unknown version comment in the fragment is an error" {
	for mark in until\ 6.1 from\ six on\ vax from; do
		echo "CONFIG_ODD=y # $mark" >"$T/fragment"
		run "$SCRIPTS/build" "$T/tree"
		one_line "build: $T/fragment: the comment after the option must be *: CONFIG_ODD=y # $mark"
	done
}

@test "build: Kconfig.fragment has only valid version comments, for each base" {
	unset FRAGMENT
	for version in 5.10.1 6.1.1 6.12.1 7.3.1; do
		rm -rf "$T/tree"
		fake_tree "$T/tree" $version
		"$SCRIPTS/build" "$T/tree"
		[ "$(grep -cE '^CONFIG_PREEMPT(_VOLUNTARY|_LAZY)?=y$' "$T/tree/obj/.config")" -eq 1 ]
		! grep -q '^CONFIG_.*#' "$T/tree/obj/.config" || false
	done
}

@test "build: the image exists only if the last build completed" {
	"$SCRIPTS/build" "$T/tree"
	FAKE_ERROR=broken run -1 "$SCRIPTS/build" "$T/tree"
	[ ! -e "$T/tree/obj/arch/x86/boot/bzImage" ]
	# A build of another target keeps the image.
	"$SCRIPTS/build" "$T/tree"
	"$SCRIPTS/build" "$T/tree" Makefile
	[ -e "$T/tree/obj/arch/x86/boot/bzImage" ]
}

# A tree whose Makefile builds an object from core.c, and the image from the object, by timestamps.
by_times() {
	sed -i '/^bzImage:/,$d' "$T/tree/Makefile"
	cat >>"$T/tree/Makefile" <<-'END'
	bzImage: $(O)/arch/x86/boot/bzImage
	$(O)/arch/x86/boot/bzImage: $(O)/core.o
	> mkdir -p $(@D) && cp $< $@
	$(O)/core.o: kernel/core.c
	> cp $< $@
	> @[ -z "$$FAKE_KILL" ] || { echo half >$@; kill -9 0; }
	END
}

@test "build: files that a killed build left incomplete are built again" {
	by_times
	"$SCRIPTS/build" "$T/tree"
	echo "int more;" >>"$T/tree/kernel/core.c"
	ln -s .. "$T/tree/obj/source"
	# Kill all processes of the run, as a power failure would.
	FAKE_KILL=1 run setsid --wait "$SCRIPTS/build" "$T/tree"
	[ "$status" -ne 0 ]
	[ "$(cat "$T/tree/obj/core.o")" = half ]
	"$SCRIPTS/build" "$T/tree"
	cmp "$T/tree/kernel/core.c" "$T/tree/obj/arch/x86/boot/bzImage"
}

@test "build: an incomplete configuration is created again; one that the build changes is an error" {
	"$SCRIPTS/build" "$T/tree"
	echo CONFIG_ONE=y >"$T/tree/obj/.config"
	run "$SCRIPTS/build" "$T/tree"
	[[ $output == *configuration* ]]
	grep -q CONFIG_TWO=y "$T/tree/obj/.config"
	sed -i 's/^bzImage:/&\n> sed -i \/TWO\/d $(O)\/.config/' "$T/tree/Makefile"
	run "$SCRIPTS/build" "$T/tree"
	[[ ${lines[-1]} == "build: $T/fragment: did not survive the build of Linux 6.1.9: CONFIG_TWO=y"* ]]
	[ ! -e "$T/tree/obj/arch/x86/boot/bzImage" ]
}

@test "build: reports a read-only tree and a full disk, and recovers" {
	mkdir "$T/tree/obj"
	mount -t tmpfs -o ro tmpfs "$T/tree/obj" 2>/dev/null || skip "cannot mount a tmpfs"
	run "$SCRIPTS/build" "$T/tree"
	umount "$T/tree/obj"
	one_line "build: cannot write to $T/tree/obj"
	mount -t tmpfs -o size=64k tmpfs "$T/tree/obj"
	head -c 90000 /dev/urandom >"$T/tree/kernel/core.c"
	run "$SCRIPTS/build" "$T/tree"
	ls "$T/tree/obj/arch/x86/boot/bzImage" && [ "$(stat -c %s "$T/tree/obj/arch/x86/boot/bzImage")" -eq 90000 ] && full=no
	[ "$status" -eq 1 ] && [ -z "${full:-}" ] || { umount "$T/tree/obj"; false; }
	# With free space again, the next run completes the build.
	mount -o remount,size=1m "$T/tree/obj"
	run "$SCRIPTS/build" "$T/tree"
	cmp "$T/tree/kernel/core.c" "$T/tree/obj/arch/x86/boot/bzImage" || { umount "$T/tree/obj"; false; }
	umount "$T/tree/obj"
}

@test "build: a new tree starts with the objects of stock, and compiles only what the series changes" {
	unset FRAGMENT
	mkdir -p "$BUILD/linux-6.1.9-1"
	work=$BUILD/linux-6.1.9-1
	fake_tree "$work/stock"
	fake_series "$T/series"
	sed -i '/^bzImage:/,$d' "$work/stock/Makefile"
	cat >>"$work/stock/Makefile" <<-'END'
	bzImage: $(O)/one.o $(O)/two.o
	> mkdir -p $(O)/arch/x86/boot && cat $^ >$(O)/arch/x86/boot/bzImage
	$(O)/one.o: kernel/core.c
	> cp $< $@ && echo compiled $@ >>$(O)/compiled
	$(O)/two.o: kernel/other.c
	> cp $< $@ && echo compiled $@ >>$(O)/compiled
	modules:
	END
	echo "int other;" >"$work/stock/kernel/other.c"
	find "$work/stock" -type f -exec touch -d '1 hour ago' {} +
	# As in verify, apply the series before stock is built.
	"$SCRIPTS/apply" "$T/series" "$work/stock" "$work/patched"
	cd "$SCRIPTS"
	builds() {
		python3 -B -c "from lab import base, tree; import pathlib
tree.Work(base.find('6.1'), pathlib.Path('$work/stock')).build('$1')"
	}
	builds stock
	: >"$work/stock/obj/compiled"
	builds patched
	[ "$(cat "$work/patched/obj/compiled")" = "compiled obj/one.o" ]
	cat "$work/patched/kernel/core.c" "$work/patched/kernel/other.c" | cmp - "$work/patched/obj/arch/x86/boot/bzImage"
	cat "$work/stock/kernel/core.c" "$work/stock/kernel/other.c" | cmp - "$work/stock/obj/arch/x86/boot/bzImage"
	# A mutant starts with the objects of the patched tree.
	sed '/0002/d' "$T/series/series" >"$T/short" && cp "$T/short" "$T/series/series"
	"$SCRIPTS/apply" "$T/series" "$work/stock" "$work/mutant"
	: >"$work/patched/obj/compiled"
	builds mutant
	[ "$(cat "$work/mutant/obj/compiled")" = "compiled obj/one.o" ]
	cat "$work/mutant/kernel/core.c" "$work/mutant/kernel/other.c" | cmp - "$work/mutant/obj/arch/x86/boot/bzImage"
	[ "$work/stock/kernel/other.c" -ot "$work/stock/obj/two.o" ]
}

@test "build: a second build of the same tree waits, and does not damage the first" {
	sed -i 's/^bzImage:/&\n> @sleep $${FAKE_SLEEP:-0}/' "$T/tree/Makefile"
	FAKE_SLEEP=2 "$SCRIPTS/build" "$T/tree" 3>&- &
	for _ in $(seq 100); do [ ! -s "$T/tree/obj/.making" ] || break; sleep 0.1; done
	touch "$T/tree/obj/kept"
	"$SCRIPTS/build" "$T/tree"
	wait $!
	[ -e "$T/tree/obj/kept" ]
}

@test "build: a make that outlives a killed build keeps the lock, and its folder is emptied afterwards" {
	sed -i 's/^bzImage:/&\n> @touch going; sleep 3; touch ended/' "$T/tree/Makefile"
	"$SCRIPTS/build" "$T/tree" 3>&- &
	for _ in $(seq 100); do [ ! -e "$T"/tree/going ] && [ ! -e "$T"/tree/obj/going ] || break; sleep 0.1; done
	kill -9 $!
	run flock -n "$T/tree/obj/.making" true
	[ $status -ne 0 ]
	touch "$T/tree/obj/half-written"
	sed -i 's/sleep 3; //' "$T/tree/Makefile"
	"$SCRIPTS/build" "$T/tree"
	[ -e "$T/tree/ended" ] || [ -e "$T/tree/obj/ended" ]
	[ ! -e "$T/tree/obj/half-written" ]
}

@test "build: the folder is emptied if make itself was killed" {
	sed -i 's/^bzImage:/&\n> @[ -e $${ALIVE:-none} ] || kill -9 $$PPID/' "$T/tree/Makefile"
	run "$SCRIPTS/build" "$T/tree"
	[ $status -ne 0 ]
	[[ $output == *"make was killed by signal 9"* ]]
	touch "$T/tree/obj/half-written"
	ALIVE=/ "$SCRIPTS/build" "$T/tree"
	[ ! -e "$T/tree/obj/half-written" ]
}

@test "selftests: LLVM=1 compiles with clang++ for the target of ARCH" {
	mkdir -p "$T/tree/tools/testing/selftests"
	cat >"$T/tree/tools/testing/selftests/lib.mk" <<-'END'
	CC := $(if $(LLVM),clang$(LLVM_SUFFIX) --target=$(if $(filter arm64,$(ARCH)),aarch64,x86_64)-linux-gnu,$(CROSS_COMPILE)gcc)
	gen_mods_dir:
	END
	compiles() { make -R -n -C "$SCRIPTS/../selftests" KSRC="$T/tree" OUT="$T/out" "$@" "$T/out/lib/fd.o" "$T/out/bpf/filter.bpf.o" 2>&1; }
	compiles LLVM=1 | grep -q '^clang++ --target=x86_64-linux-gnu .* lib/fd.cc'
	compiles LLVM=1 LLVM_SUFFIX=-19 | grep -q '^clang++-19 --target=x86_64-linux-gnu .* lib/fd.cc'
	compiles LLVM=1 ARCH=arm64 >"$T/commands"
	grep -q '^clang++ --target=aarch64-linux-gnu .* lib/fd.cc' "$T/commands"
	grep -q '^clang -target bpf -D__TARGET_ARCH_arm64 .*/usr/include/aarch64-linux-gnu .* bpf/filter.bpf.c' "$T/commands"
	compiles | grep -q '^g++ .* lib/fd.cc'
	compiles CROSS_COMPILE=x- | grep -q '^x-g++ .* lib/fd.cc'
}
