#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# A repository with one base, a series of two patches, a live patch that leaves out the first one, and a tree.
# Its build compiles nothing, and prints a warning for each line with "bad".
setup() {
	set_up
	local patch series=$T/top/patches/linux-6.1
	fake_top
	mkdir -p "$T/top/patches/livepatch"
	fake_series "$series"
	for patch in "$series"/*.patch; do
		printf 'From: A <a@b.example>\nSubject: [PATCH] core: Do it\n\nTests: it.*\n---\n' | cat - "$patch" >"$T/patch"
		# The format of diff --show-c-function.
		sed -E 's/^@@ -7,.*/& int line6;/; s/^@@ -17,.*/& int head16;/; s/^@@ -27,.*/& int line26;/' "$T/patch" >"$patch"
		mv "$patch" "${patch%-*}-core-do-it.patch"
	done
	sed -i 's/-.*\.patch/-core-do-it.patch/' "$series/series"
	fake_tree "$BUILD/linux-6.1.9-1/stock"
	mkdir "$BUILD/linux-6.1.9-1/stock/scripts"
	for patch in checkpatch.pl kernel-doc; do
		install /bin/true "$BUILD/linux-6.1.9-1/stock/scripts/$patch"
	done
	(
		cd "$T/series-tree" || exit
		sed 's/line20;/line20_live;/' a/kernel/core.c >b/kernel/core.c
		cp a/include/core.h b/include/core.h
	)
	sed -i 's/line10_one;/line10;/' "$T/series-tree"/?/kernel/core.c
	differences >"$T/top/patches/livepatch/linux-6.1.patch"
	echo "without 0001-core-do-it.patch # why" >"$T/top/patches/livepatch/linux-6.1.plan"
	program "$T/top/scripts/fetch" "[ \"\$1\" = --list ] && echo 6.1.9-1 || echo '$BUILD/linux-6.1.9-1/stock'"
	program "$T/top/scripts/build" 'mkdir -p "$1/$OBJ/kernel/events"
echo KBUILD_EXTRA_WARN1 >"$1/$OBJ/kernel/events/.core.o.cmd"
{ echo "  CHECK   kernel/core.c"; grep -n bad "$1/kernel/core.c" | sed "s/^\([0-9]*\):/kernel\/core.c:\1:1: warning: /"; } >"$1/$OBJ/build.log"'
}

# series_check -STATUS
series_check() {
	run "$1" "$T/top/scripts/prove/series-check" --fast 6.1
	# Remove the durations.
	output=$(grep -v '^# series .* s$' <<<"$output")
}

@test "series-check: a series that has passed is checked again only after a change" {
	series_check -0
	[ "${output##*$'\n'}" = 1..14 ]
	[[ $output != *"not ok"* ]]
	[[ $output == *"series 6.1: the live patch applies on top"* ]]
	before=$output
	series_check -0
	[ "$output" = "# nothing that goes into this has changed since it passed"$'\n'"$before" ]
	echo "# a comment" >>"$T/top/patches/livepatch/linux-6.1.plan"
	series_check -0
	[ "$output" = "$before" ]
}

@test "series-check: a live patch that does not apply, and a plan that names a missing patch, fail" {
	sed -i 's/^ int line19;/ int line19_old;/' "$T/top/patches/livepatch/linux-6.1.patch"
	series_check -1
	[ "$(grep -c '^not ok' <<<"$output")" -eq 1 ]
	[[ $output == *"not ok "*" series 6.1: the live patch applies on top"$'\n'"# linux-6.1.patch: "*"1 out of 1 hunk FAILED"* ]]
	echo "without 0003-three.patch" >"$T/top/patches/livepatch/linux-6.1.plan"
	series_check -1
	[[ $output == *"# linux-6.1.plan leaves out a patch that is not in the series: 0003-three.patch"* ]]
}

@test "series-check: a patch that is unrefreshed, unlisted, without "Tests:", or adds a warning fails" {
	cd "$T/top/patches/linux-6.1"
	sed -i 's/line30_two/bad/; /^Tests:/d' 0002-core-do-it.patch
	sed 1d 0001-core-do-it.patch >0003-three.patch
	sed -i 's/^@@ -7,/@@ -6,/' 0001-core-do-it.patch
	series_check -1
	[ "$(grep -c '^not ok' <<<"$output")" -eq 5 ]
	[[ $output == *"# 0003-three.patch: 0 times in the series, 1 in the folder"* ]]
	[[ $output == *"not ok 2 series 6.1: is as quilt refresh writes it"* ]]
	[[ $output == *"not ok "*" series 6.1: 0002-core-do-it.patch: the message has its parts"* ]]
	[[ $output == *"compiles without new warnings from W=1 and sparse"$'\n'"# kernel/core.c: warning: int bad;"* ]]
	[ ! -e "$BUILD/series-check/6.1-0" ]
}

@test "series-check: numbers in another order, a name unlike the subject, and a trailer that does not parse fail" {
	cd "$T/top/patches/linux-6.1"
	printf '# BASE linux-6.1 6.1.9-1\n0002-core-do-it.patch\n0001-core-do-it.patch\n' >series
	sed -i 's/^Subject.*/&, twice/; s/^Tests:.*/&\n\nMore text./' 0002-core-do-it.patch
	series_check -1
	[ "$(grep -c '^not ok' <<<"$output")" -eq 2 ]
	[[ $output == *"not ok 3 series 6.1: has its patches in the order of their numbers"$'\n'"# 0001-core-do-it.patch comes after 0002-core-do-it.patch"* ]]
	[[ $output == *"# the name for its subject is 0002-core-do-it-twice.patch"$'\n'"# git does not parse Tests: it.*"* ]]
}

@test "series-check: a series that gives another tree with git am than with quilt fails" {
	# Only git am applies a patch that series does not name.
	cd "$T/top/patches/linux-6.1"
	{
		sed '/^@@/,$d' 0001-core-do-it.patch
		printf '%s\n' '@@ -38,3 +38,4 @@ int line37;' ' int line38;' ' int line39;' ' int line40;' '+int line41;'
	} >0003-core-do-it.patch
	series_check -1
	[[ $output == *"not ok 4 series 6.1: gives the same tree with git am and with quilt"$'\n'*"< int line41;"* ]]
}
