#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

setup() {
	set_up
	fake_tree "$T/tree"
	fake_series "$T/series"
}

@test "apply: applies the whole series in place" {
	run -0 "$SCRIPTS/apply" "$T/series" "$T/tree"
	grep -q line10_one "$T/tree/kernel/core.c"
	grep -q line30_two "$T/tree/kernel/core.c"
	grep -q head20_two "$T/tree/include/core.h"
	[ "$(find "$T/tree" -type f | wc -l)" -eq 3 ]
}

@test "apply: applies to a copy, and leaves the tree unchanged" {
	cp -r "$T/tree" "$T/before"
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	diff -r "$T/before" "$T/tree"
	grep -q line30_two "$T/dest/kernel/core.c"
}

@test "apply: a second run with the same copy writes nothing" {
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	run "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	[[ $output == *": 0 files written in "* ]]
}

@test "apply: after a change to a patch, only its files are written, and the build folder is kept" {
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	mkdir "$T/dest/obj" && touch "$T/dest/obj/core.o"
	sed -i 's/head20_two/head20_new/' "$T/series/0002-two.patch"
	run "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	[[ $output == *": 1 files written in "* ]]
	grep -q head20_new "$T/dest/include/core.h"
	[ -f "$T/dest/obj/core.o" ]
}

@test "apply: a patch removed from the series is reverted in the copy, with new timestamps" {
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	touch -d '1 hour ago' "$T/tree/include/core.h"
	touch "$T/stamp" -d '1 minute ago'
	sed -i '/0002/d' "$T/series/series"
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	cmp "$T/tree/include/core.h" "$T/dest/include/core.h"
	[ "$T/dest/include/core.h" -nt "$T/stamp" ]
	! grep -q line30_two "$T/dest/kernel/core.c" || false
}

@test "apply: files added to or removed from the tree are updated in the copy" {
	echo "int other;" >"$T/tree/kernel/other.c"
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	echo "int newer;" >"$T/tree/kernel/newer.c"
	rm "$T/tree/kernel/other.c"
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	[ -f "$T/dest/kernel/newer.c" ]
	[ ! -e "$T/dest/kernel/other.c" ]
}

@test "apply: if a patch does not apply, names patch, file and rejects, and leaves the tree unchanged" {
	sed -i 's/head20;/head_of_another_kernel;/' "$T/tree/include/core.h"
	cp -r "$T/tree" "$T/before"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: 0002-two.patch does not apply to Linux 6.1.9: include/core.h; the rejects are in $BUILD/rejects"
	grep -q head20_two "$BUILD/rejects/include/core.h.rej"
	diff -r "$T/before" "$T/tree"
}

@test "apply: a patch that would only apply with fuzz is refused" {
	sed -i 's/line8;/line_of_another_kernel;/' "$T/tree/kernel/core.c"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: 0001-one.patch does not apply *"
}

@test "apply: a patch to a missing file is refused" {
	rm "$T/tree/include/core.h"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: 0002-two.patch does not apply *"
}

@test "apply: applying twice in place is refused" {
	"$SCRIPTS/apply" "$T/series" "$T/tree"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree has this series already"
}

@test "apply: a tree of another version is refused" {
	fake_tree "$T/tree" 6.12.9
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree is Linux 6.12.9; the series is for 6.1; use patches/linux-6.12, or BASE=6.12 with make"
	sed -i '1a # ALSO linux-5.19 5.19.1-1 elsewhere' "$T/series/series"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree is Linux 6.12.9; the series is for 6.1 and 5.19; use patches/linux-6.12, or BASE=6.12 with make"
	sed -i 's/ALSO linux-5.19/ALSO linux-6.12/' "$T/series/series"
	run -0 "$SCRIPTS/apply" "$T/series" "$T/tree"
	[[ $output == "2 patches applied to Linux 6.12.9: "* ]]
	fake_tree "$T/tree" 6.7.1
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree is Linux 6.7.1; the series is for 6.1 and 6.12"
}

@test "apply: if a series does not apply to a point release before its first one, the message names that" {
	sed -i '1a # SINCE 6.1.10' "$T/series/series"
	run -0 "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	sed -i 's/line30/line30_before/' "$T/tree/kernel/core.c"
	run -1 "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree is Linux 6.1.9; the series requires 6.1.10 or later"
	sed -i 's/6.1.10/6.1.9/' "$T/series/series"
	run -1 "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: 0002-two.patch does not apply *"
}

@test "apply: a dirty git tree is refused, a clean one accepted" {
	cd "$T/tree"
	git init -q
	git -c user.name=t -c user.email=t@localhost add -A
	git -c user.name=t -c user.email=t@localhost commit -q -m base
	echo >>kernel/core.c
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree has uncommitted changes; *"
	command_is git 'echo "fatal: detected dubious ownership" >&2; exit 128'
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree: git status failed (fatal: detected dubious ownership); run make apply as the owner of the tree"
	rm "$T/bin/git"
	git checkout -q kernel/core.c
	"$SCRIPTS/apply" "$T/series" "$T/tree"
}

@test "apply: run by root, keeps the owner of the tree" {
	[ "$(id -u)" -eq 0 ] || skip "takes root"
	chown -R 65534 "$T/tree"
	"$SCRIPTS/apply" "$T/series" "$T/tree"
	[ -z "$(find "$T/tree" -type f ! -uid 65534)" ]
}

@test "apply: rejects a folder that is no kernel tree, a missing series, a series without a BASE line" {
	run "$SCRIPTS/apply" "$T/series" "$T"
	one_line "apply: $T is not a kernel tree *"
	run "$SCRIPTS/apply" "$T/tree" "$T/tree"
	one_line "apply: no series in $T/tree (available: patches/linux-{5.10,*})"
	sed -i 1d "$T/series/series"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: * does not begin with a '# BASE linux-X.Y VERSION' line"
	run "$SCRIPTS/apply"
	one_line "usage: *"
}

@test "make apply: names the missing argument" {
	run make --no-print-directory -C "$SCRIPTS/.." apply
	[ "$status" -ne 0 ]
	[[ ${lines[0]} == "make apply: KSRC is not set; run make apply KSRC="* ]]
}

@test "apply: an empty series copies the tree, and reverts earlier patches" {
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	sed -i 1q "$T/series/series"
	for _ in 1 2; do
		run -0 "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
		[[ $output == "0 patches applied to Linux 6.1.9: "* ]]
		diff -r --exclude='.series-*' "$T/tree" "$T/dest"
	done
	run "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/fresh"
	diff -r --exclude='.series-*' "$T/tree" "$T/fresh"
	run -0 "$SCRIPTS/apply" "$T/series" "$T/tree"
	[[ $output == *": 0 files written in $T/tree" ]]
}

# killed_at SYSCALL N ARGUMENT...: runs apply, and kills it at the Nth call of SYSCALL.
killed_at() {
	# TMPDIR: the test removes the temporary files that apply could not.
	TMPDIR=$T run -137 strace -qq -o /dev/null -e trace="$1" -e inject="$1:signal=KILL:when=$2" "$SCRIPTS/apply" "${@:3}"
}

@test "apply: after a kill during the copy, the next run makes the same copy, with new timestamps" {
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/right"
	command_is rsync '[ ! -e "'"$T"'/kill" ] || kill -9 $PPID
exec /usr/bin/rsync "$@"'
	for place in rsync fchmod:1 fchmod:2 rename:1 rename:2 rename:3; do
		"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
		find "$T/tree" -type f -exec touch -d '1 hour ago' {} +
		touch -d '1 minute ago' "$T/stamp"
		sed '/0002/d' "$T/series/series" >"$T/series.short"
		cp -r "$T/series" "$T/less" && cp "$T/series.short" "$T/less/series"
		echo "killed at $place"
		if [ $place = rsync ]; then
			touch "$T/kill"
			TMPDIR=$T run "$SCRIPTS/apply" "$T/less" "$T/tree" "$T/dest"
			rm "$T/kill"
			[ "$status" -eq 137 ]
			# rsync was not killed: wait for it, because it would write to the next run's copy.
			while pgrep -f "rsync .*$T/dest" >/dev/null; do sleep 0.1; done
		else
			killed_at "${place%:*}" "${place#*:}" "$T/less" "$T/tree" "$T/dest"
		fi
		"$SCRIPTS/apply" "$T/less" "$T/tree" "$T/dest"
		cmp "$T/tree/include/core.h" "$T/dest/include/core.h"
		# The file must be newer than objects that were built with the longer series.
		[ "$T/dest/include/core.h" -nt "$T/stamp" ] || { echo "$place: an old time"; false; }
		"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
		diff -r "$T/right" "$T/dest"
		rm -r "$T/less"
	done
}

@test "apply: images built from other sources are removed" {
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	mkdir -p "$T/dest/obj/arch/x86/boot"
	touch "$T/dest/obj/arch/x86/boot/bzImage"
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	[ -e "$T/dest/obj/arch/x86/boot/bzImage" ]
	sed -i 's/head20_two/head20_new/' "$T/series/0002-two.patch"
	"$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest"
	[ ! -e "$T/dest/obj/arch/x86/boot/bzImage" ]
}

@test "apply: reports a read-only folder and a full disk, and recovers" {
	mkdir "$T/dest"
	mount -t tmpfs -o ro tmpfs "$T/dest" 2>/dev/null || skip "cannot mount a tmpfs"
	run "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest/tree"
	umount "$T/dest"
	one_line "apply: cannot write to $T/dest/tree"
	head -c 90000 /dev/urandom >"$T/tree/kernel/big"
	mount -t tmpfs -o size=64k tmpfs "$T/dest"
	run "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest/tree"
	mount -o remount,size=1m "$T/dest"
	[ "$status" -ne 0 ] && [[ ${lines[-1]} == "apply: cannot copy "* ]] || { umount "$T/dest"; false; }
	run "$SCRIPTS/apply" "$T/series" "$T/tree" "$T/dest/tree"
	cmp "$T/tree/kernel/big" "$T/dest/tree/kernel/big" || { umount "$T/dest"; false; }
	umount "$T/dest"
}

@test "apply: PART=feature applies only the first section" {
	sed -i '/^0001/i # Feature
	/^0002/i # Fixes: perf and BPF' "$T/series/series"
	PART=feature run -0 "$SCRIPTS/apply" "$T/series" "$T/tree"
	[[ $output == "1 patches applied to Linux 6.1.9: 1 files written in "* ]]
	grep -q line10_one "$T/tree/kernel/core.c"
	! grep -q line30_two "$T/tree/kernel/core.c" || false
	PART=feature run -1 "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree has this series already"
	run -1 "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/tree has the section Feature already; revert it first, or apply the patches after it with git am"
}

@test "apply: PART=feature is refused for a series without the section, and leaves the tree unchanged" {
	cp -r "$T/tree" "$T/before"
	PART=feature run -1 "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: PART=feature: $T/series/series has no section '# Feature', because Linux has the feature since 6.10; leave out PART"
	diff -r "$T/before" "$T/tree"
}

@test "apply: an unknown PART is refused, and any PART for a command without parts" {
	PART=speed run -1 "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: PART=speed: no such part (available: feature)"
	PART=feature run -1 "$SCRIPTS/prove/series-check" 6.1
	one_line "series-check: PART= is for make apply, verify and dist; leave it out"
}

@test "apply: a series whose first line is unfinished, or that is not text, is refused in one line" {
	sed -i '1s/.*/# BASE linux-/' "$T/series/series"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: $T/series/series does not begin with a '# BASE linux-X.Y VERSION' line"
	head -c 300 /dev/zero | tr '\0' '\377' >"$T/series/series"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: *"
}

@test "apply: if a file cannot be written, no file has changed" {
	cp -r "$T/tree" "$T/before"
	mkdir "$T/tree/kernel/core.c.part"
	run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: cannot write to $T/tree"
	rmdir "$T/tree/kernel/core.c.part"
	diff -r "$T/before" "$T/tree"
}

@test "apply: does not follow a link that the owner of the tree has planted" {
	echo secret >"$T/secret"
	chmod 600 "$T/secret"
	ln -s "$T/secret" "$T/tree/kernel/core.c.part"
	run -0 "$SCRIPTS/apply" "$T/series" "$T/tree"
	[ "$(cat "$T/secret")" = secret ]
	[ "$(stat -c %a "$T/secret")" = 600 ]
	[ ! -L "$T/tree/kernel/core.c" ]
}

@test "apply: names the patch that does not apply even if the rejects cannot be written" {
	sed -i s/head20/head_20/ "$T/tree/include/core.h"
	touch "$T/file"
	BUILD=$T/file run "$SCRIPTS/apply" "$T/series" "$T/tree"
	one_line "apply: 0002-two.patch does not apply to Linux 6.1.9: include/core.h; the rejects cannot be written to $T/file/rejects: *"
}

@test "apply: a tree that does not exist or cannot be read is an error" {
	run -1 "$SCRIPTS/apply" "$T/series" "$T/nowhere"
	one_line "apply: $T/nowhere is not a kernel tree (no such folder)"
	[ "$(id -u)" -eq 0 ] || skip "only root can run this as another user"
	chmod 755 "$T" "$T/series"
	chmod 711 "$T/tree"
	chmod 600 "$T/tree/Makefile"
	run -1 setpriv --reuid=65534 --clear-groups "$SCRIPTS/apply" "$T/series" "$T/tree"
	[[ $output == "apply: cannot read $T/tree/Makefile: Permission denied" ]]
}
