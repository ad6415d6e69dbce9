#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

prepare() {
	fake_tree "$T/tree"
	printf '# a comment\nCONFIG_ONE=y\nCONFIG_TWO=y\n' >"$T/fragment"
	export FRAGMENT=$T/fragment
}

@test "build: prints the image on stdout, the steps on stderr" {
	prepare
	run bash -c "'$SCRIPTS/build' '$T/tree' 2>'$T/steps'"
	[ "$status" -eq 0 ]
	[ "$output" = "$T/tree/obj/arch/x86/boot/bzImage" ]
	grep -q 'bzImage: Linux 6.1.9, 1 objects' "$T/steps"
}

@test "build: does not configure again without need, and does when the fragment changes" {
	prepare
	run "$SCRIPTS/build" "$T/tree"
	[[ $output == *configuration* ]]
	run "$SCRIPTS/build" "$T/tree"
	[[ $output != *configuration* ]]
	sed -i /TWO/d "$T/fragment"
	run "$SCRIPTS/build" "$T/tree"
	[[ $output == *configuration* ]]
}

@test "build: a line that did not survive stops it and is named, also the next time" {
	prepare
	export FAKE_LOST=CONFIG_TWO
	for _ in 1 2; do
		run "$SCRIPTS/build" "$T/tree"
		[ "$status" -eq 1 ]
		[[ ${lines[-1]} == "build: $T/fragment: did not survive configuration on Linux 6.1.9: CONFIG_TWO=y "* ]]
	done
}

@test "build: an option that must be off and is on is named" {
	prepare
	echo CONFIG_THREE=n >>"$T/fragment"
	sed -i 's/^> grep.*/> sed s,=n,=y, $(KCONFIG_ALLCONFIG) >$(O)\/.config/' "$T/tree/Makefile"
	run "$SCRIPTS/build" "$T/tree"
	[[ ${lines[-1]} == *": CONFIG_THREE=n "* ]]
}

@test "build: an error shows the last lines of the log and where it is" {
	prepare
	export FAKE_ERROR="disk quota exceeded"
	run "$SCRIPTS/build" "$T/tree"
	[ "$status" -eq 1 ]
	[[ $output == *"core.c:1: error: disk quota exceeded"* ]]
	[[ ${lines[-1]} == "build: $T/tree: bzImage failed; the whole log is $T/tree/obj/build.log" ]]
}

@test "build: the PMU of the tests, beside an image that can load it" {
	prepare
	for modules in n y; do
		echo "CONFIG_MODULES=$modules" >>"$T/fragment"
		run "$SCRIPTS/build" "$T/tree"
		[ "$status" -eq 0 ]
		code=0
		[ -e "$T/tree/obj/perf_bpf_pmu/perf_bpf_pmu.ko" ] || code=1
		[ $modules$code = n1 ] || [ $modules$code = y0 ]
		sed -i /MODULES/d "$T/fragment"
	done
}

@test "build: an image is of the kernel that was built, whatever mode ccache is in" {
	command -v ccache >/dev/null || skip "no ccache"
	prepare
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
		run "$SCRIPTS/build" "$T/tree"
		[ "$status" -eq 0 ]
		grep -aq "line_$line" "$T/tree/obj/piggy.o"
	done
}

@test "build: not a tree, no fragment" {
	prepare
	run "$SCRIPTS/build" "$T"
	one_line "build: $T is not a kernel tree *"
	FRAGMENT=$T/none run "$SCRIPTS/build" "$T/tree"
	one_line "build: no such file: $T/none"
	run "$SCRIPTS/build"
	one_line "usage: *"
}

@test "build: a line that is for other versions or architectures is left out, and its mark never reaches kbuild" {
	prepare
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

@test "build: a mark that it does not understand stops it" {
	prepare
	for mark in until\ 6.1 from\ six on\ vax from; do
		echo "CONFIG_ODD=y # $mark" >"$T/fragment"
		run "$SCRIPTS/build" "$T/tree"
		one_line "build: $T/fragment: the comment after the option must be *: CONFIG_ODD=y # $mark"
	done
}

@test "build: every mark in the fragment of the project is understood on every base" {
	for version in 5.10.1 6.1.1 6.12.1 7.3.1; do
		rm -rf "$T/tree"
		fake_tree "$T/tree" $version
		"$SCRIPTS/build" "$T/tree"
		[ "$(grep -cE '^CONFIG_PREEMPT(_VOLUNTARY|_LAZY)?=y$' "$T/tree/obj/.config")" -eq 1 ]
		! grep -q '^CONFIG_.*#' "$T/tree/obj/.config" || false
	done
}

@test "build: an image is there only if the last build came to its end" {
	prepare
	"$SCRIPTS/build" "$T/tree"
	FAKE_ERROR=broken run "$SCRIPTS/build" "$T/tree"
	[ "$status" -eq 1 ]
	[ ! -e "$T/tree/obj/arch/x86/boot/bzImage" ]
	# A build of something else leaves it alone.
	"$SCRIPTS/build" "$T/tree"
	"$SCRIPTS/build" "$T/tree" Makefile
	[ -e "$T/tree/obj/arch/x86/boot/bzImage" ]
}

# A tree whose Makefile makes an object of core.c, and the image of the object, as make does: by times.
by_times() {
	prepare
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

@test "build: what a killed build left half-written is made again" {
	by_times
	"$SCRIPTS/build" "$T/tree"
	echo "int more;" >>"$T/tree/kernel/core.c"
	ln -s .. "$T/tree/obj/source"
	# All of a run, as a machine that goes off.
	FAKE_KILL=1 run setsid --wait "$SCRIPTS/build" "$T/tree"
	[ "$status" -ne 0 ]
	[ "$(cat "$T/tree/obj/core.o")" = half ]
	"$SCRIPTS/build" "$T/tree"
	cmp "$T/tree/kernel/core.c" "$T/tree/obj/arch/x86/boot/bzImage"
}

@test "build: a configuration that is cut short is made again, one that the build changes is reported" {
	prepare
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

@test "build: a tree that cannot be written, a disk that is full" {
	prepare
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
	# With room again, the next run makes it whole.
	mount -o remount,size=1m "$T/tree/obj"
	run "$SCRIPTS/build" "$T/tree"
	cmp "$T/tree/kernel/core.c" "$T/tree/obj/arch/x86/boot/bzImage" || { umount "$T/tree/obj"; false; }
	umount "$T/tree/obj"
}

@test "build: a new tree begins with the objects of stock, and compiles what the series touches" {
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
	# The order of verify: the series is applied before stock is built.
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
	# A mutant, from the patched tree.
	sed '/0002/d' "$T/series/series" >"$T/short" && cp "$T/short" "$T/series/series"
	"$SCRIPTS/apply" "$T/series" "$work/stock" "$work/mutant"
	: >"$work/patched/obj/compiled"
	builds mutant
	[ "$(cat "$work/mutant/obj/compiled")" = "compiled obj/one.o" ]
	cat "$work/mutant/kernel/core.c" "$work/mutant/kernel/other.c" | cmp - "$work/mutant/obj/arch/x86/boot/bzImage"
	[ "$work/stock/kernel/other.c" -ot "$work/stock/obj/two.o" ]
}

@test "build: of two at once the second waits, and takes nothing from the first" {
	prepare
	sed -i 's/^bzImage:/&\n> @sleep $${FAKE_SLEEP:-0}/' "$T/tree/Makefile"
	FAKE_SLEEP=2 "$SCRIPTS/build" "$T/tree" 3>&- &
	for _ in $(seq 100); do [ ! -s "$T/tree/obj/.making" ] || break; sleep 0.1; done
	touch "$T/tree/obj/kept"
	"$SCRIPTS/build" "$T/tree"
	wait $!
	[ -e "$T/tree/obj/kept" ]
}

@test "selftests: LLVM=1 compiles with clang++, for the target that ARCH says" {
	mkdir -p "$T/tree/tools/testing/selftests"
	cat >"$T/tree/tools/testing/selftests/lib.mk" <<-'END'
	CC := $(if $(LLVM),clang$(LLVM_SUFFIX) --target=$(if $(filter arm64,$(ARCH)),aarch64,x86_64)-linux-gnu,$(CROSS_COMPILE)gcc)
	gen_mods_dir:
	END
	compiles() { make -R -n -C "$SCRIPTS/../selftests" KSRC="$T/tree" OUT="$T/out" "$@" "$T/out/lib/fd.o" "$T/out/bpf/filter.bpf.o" 2>&1; }
	compiles LLVM=1 | grep -q '^clang++ --target=x86_64-linux-gnu .* lib/fd.cc'
	compiles LLVM=1 LLVM_SUFFIX=-19 | grep -q '^clang++-19 --target=x86_64-linux-gnu .* lib/fd.cc'
	compiles LLVM=1 ARCH=arm64 >"$T/said"
	grep -q '^clang++ --target=aarch64-linux-gnu .* lib/fd.cc' "$T/said"
	grep -q '^clang -target bpf -D__TARGET_ARCH_arm64 .*/usr/include/aarch64-linux-gnu .* bpf/filter.bpf.c' "$T/said"
	compiles | grep -q '^g++ .* lib/fd.cc'
	compiles CROSS_COMPILE=x- | grep -q '^x-g++ .* lib/fd.cc'
}
