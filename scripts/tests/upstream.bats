#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# committed: commits the files in $T/top, because the date of the mails is that of a commit
committed() {
	git -C "$T/top" init -q
	git -C "$T/top" add -A
	git -C "$T/top" -c user.name=t -c user.email=t@localhost commit -q -m top
}

# Copies the real sets and patches, without a tree: errors in them are reported before a tree is fetched.
real_sets() {
	fake_top
	mkdir -p "$T/top/patches/expect"
	cp -r "$SCRIPTS/../patches/linux-7.3" "$SCRIPTS/../patches/upstream" "$T/top/patches"
	cp -r "$SCRIPTS/../patches/expect/linux-7.3" "$T/top/patches/expect"
	sets=$T/top/patches/upstream
	program "$T/top/scripts/fetch" 'echo "fetch: no tree here" >&2; exit 1'
	committed
}

# refuses LINE: upstream prints this error instead of fetching a tree
refuses() {
	run "$T/top/scripts/ship/upstream"
	one_line "upstream: $1"
}

@test "upstream: the real sets have each patch once, and do not mention this repository" {
	real_sets
	run "$T/top/scripts/ship/upstream"
	one_line "fetch: no tree here"
}

@test "upstream: a patch in no set, in two sets, or that does not exist is an error" {
	real_sets
	sed -i /^0301/d "$sets/perf-urgent"
	refuses "0301-perf-fix-stopped-breakpoints-and-tracepoints-that-never-count-again.patch is in no set of upstream/; *"
	echo 0301-perf-fix-stopped-breakpoints-and-tracepoints-that-never-count-again.patch | tee -a "$sets/bpf" >>"$sets/mm"
	refuses "0301-perf-fix-stopped-breakpoints-and-tracepoints-that-never-count-again.patch is in more than one set of upstream/"
	echo 0099-none.patch >>"$sets/bpf"
	refuses "upstream/bpf names 0099-none.patch, which does not exist"
}

@test "upstream: a test in no set is an error" {
	real_sets
	sed -i /^selftests/d "$sets/mm"
	refuses "selftests-x86.patch is in no set of upstream/; *"
}

@test "upstream: a set without tree or cover letter, or that needs an unknown set or itself, is an error" {
	real_sets
	sed -i '1s/ \[PATCH\]//' "$sets/perf-core"
	refuses "upstream/perf-core does not begin with a '# TREE \[PREFIX\] TREE BRANCH' line"
	sed -i -e '1s/TREE/& [PATCH]/' -e '2,$s/^#.*/#/' "$sets/perf-core"
	refuses "upstream/perf-core has no cover letter"
	cp "$SCRIPTS/../patches/upstream/perf-core" "$sets"
	sed -i '1a # NEEDS unknown' "$sets/perf-core"
	refuses "upstream/perf-core needs unknown, which does not exist"
	sed -i 's/unknown/bpf-next/' "$sets/perf-core"
	sed -i 's/^# NEEDS .*/& perf-core/' "$sets/bpf-next"
	refuses "upstream/bpf-next needs itself"
}

@test "upstream: a mention of this repository in a message, code or cover letter is an error" {
	real_sets
	sed -i '/^Fixes:/i As rule C6 says.\n' "$T/top/patches/linux-7.3"/0204-*
	refuses "upstream text mentions this repository: 0204-*As rule C6 says."
	sed -i '/C6/,+1d' "$T/top/patches/linux-7.3"/0204-*
	sed -i 's/^+.*cookie;$/& \/* see perf_bpf_filter *\//' "$T/top/patches/linux-7.3"/0204-*
	refuses "upstream text mentions this repository: 0204-*see perf_bpf_filter *"
	cp "$SCRIPTS/../patches/linux-7.3"/0204-* "$T/top/patches/linux-7.3"
	sed -i '$i # The mutants show it.' "$sets/bpf"
	refuses "upstream text mentions this repository: upstream/bpf:*mutants show it."
}

@test "upstream: a cover letter that is too wide, or does not say what was not tested, is an error" {
	real_sets
	sed -i '/^# Not tested: /s/$/ This line has more columns than a mail may have, which are seventy-five./' "$sets/bpf"
	refuses "upstream/bpf:*: 1?? columns, at most 75"
	sed -i '/^# Not tested: /d' "$sets/bpf"
	refuses "upstream/bpf does not say what was not tested ('Not tested: ...')"
}

@test "upstream: a cover letter with other instructions than those measured is an error" {
	real_sets
	run "$T/top/scripts/ship/upstream"
	one_line "fetch: no tree here"
	sed -i '/^sampling  *[0-9]/s/[0-9][0-9]*/1&/' "$T/top/patches/expect/linux-7.3/instructions"
	refuses "upstream/perf-core: '* instead of * guest instructions' is not in patches/expect/linux-7.3/instructions"
}

@test "upstream: a Fixes: line in the wrong format is an error" {
	real_sets
	sed -i 's/^Fixes: \(.......\)..... /Fixes: \1 /' "$T/top/patches/linux-7.3"/0204-*
	refuses "Fixes: requires 12 digits and (\"the subject\"): 0204-*"
}

# patch_of NAME OLD NEW: prints a patch from tree OLD to tree NEW
patch_of() {
	printf 'From: A <a@b.example>\nSubject: [PATCH] %s: Do it\n\nSay why.\n\nTests: it.* in the selftests\nperf_bpf_filter.\n\n---\n' "$1"
	(cd "$T" && diff -u --label a/kernel/core.c --label b/kernel/core.c "$2/kernel/core.c" "$3/kernel/core.c") || true
}

# A series of two patches to adjacent lines, in two sets, of which the second needs the first.
fake_sets() {
	local dir=$T/top/patches/linux-7.3
	sets=$T/top/patches/upstream
	fake_top
	mkdir -p "$dir" "$sets"
	fake_tree "$T/tree" 7.3.9
	cp -r "$T/tree" "$T/one"
	sed -i 's/line28;/line28_one;/' "$T/one/kernel/core.c"
	cp -r "$T/one" "$T/two"
	sed -i 's/line30;/line30_two;/' "$T/two/kernel/core.c"
	patch_of one tree one >"$dir/0001-one.patch"
	patch_of two one two >"$dir/0002-two.patch"
	printf '# BASE linux-7.3 7.3.9-1\n0001-one.patch\n0002-two.patch\n' >"$dir/series"
	printf '# TREE [PATCH one] a master\n#\n# one: All\n#\n# At last.\n#\n# Not tested: hardware.\n0001-one.patch\n' >"$sets/b-one"
	printf '# TREE [PATCH] c next\n# NEEDS b-one\n#\n# two: All\n#\n# Not tested: hardware.\n0002-two.patch\n' >"$sets/a-two"
	program "$T/tree/scripts/get_maintainer.pl" 'case "$*" in *--nom*) echo list@d.example ;; esac; echo "M <m@d.example>"'
	program "$T/tree/scripts/checkpatch.pl" ''
	program "$T/top/scripts/fetch" "echo '$T/tree'"
	committed
}

@test "upstream: writes sets in order, with cover letters and unique recipients, without sign-off" {
	fake_sets
	run -0 "$T/top/scripts/ship/upstream"
	[ "${lines[0]}" = "$T/top/dist/upstream/b-one" ]
	[ "${#lines[@]}" -eq 2 ]
	cd "$T/top/dist/upstream"
	[ "$(find . -type f | sort | xargs)" = "./a-two/0000-cover-letter.patch ./a-two/0001-two-Do-it.patch ./b-one/0000-cover-letter.patch ./b-one/0001-one-Do-it.patch" ]
	grep -qx 'Subject: \[PATCH one 0/1\] one: All' b-one/0000*
	grep -qx 'At last.' b-one/0000*
	[[ $(xargs <"$(echo b-one/0000*)") == *"For a, master. Base: tag v7.3.9 of the stable tree, as patched by Debian, on which all sets were tested together. Each change applies to it without the others."* ]]
	grep -qx '  one: All' a-two/0000*
	! grep -q 'without the others' a-two/0000* || false
	[ "$(cat b-one/0001* | grep -c 'm@d.example')" -eq 1 ]
	grep -q 'list@d.example' b-one/0001*
	! grep -qE 'perf_bpf_filter|^Signed-off-by:' */* || false
}

@test "upstream: a fix for an oops or a deadlock has a Cc: stable line, other patches have none" {
	fake_sets
	sed -i 's/^Tests: it.*/Fixes: 123456789012 ("core: Break it")\nSeverity: wrong result, deadlock; root\n&/' "$T/top/patches/linux-7.3/0001"*
	sed -i 's/^Tests: it.*/Fixes: 123456789012 ("core: Break it")\nSeverity: leak; root\n&/' "$T/top/patches/linux-7.3/0002"*
	run -0 "$T/top/scripts/ship/upstream"
	[ "$(sed -n '/^Fixes: /,/^---$/p' "$T/top/dist/upstream/b-one"/0001*)" = 'Fixes: 123456789012 ("core: Break it")
Cc: stable@vger.kernel.org
---' ]
	! grep -q stable@ "$T/top/dist/upstream/a-two"/* || false
	# "Fixes:" says which stable kernels need it.
	sed -i '/^Fixes:/d' "$T/top/patches/linux-7.3/0001"*
	refuses "0001-one.patch: Severity: says oops or deadlock, but there is no Fixes: line"
}

@test "upstream: a cover letter without a base, or a patch that lost its Cc: stable line, is an error" {
	fake_sets
	command_is fmt 'true'
	refuses "upstream/b-one: the cover letter names no base"
	rm "$T/bin/fmt"
	sed -i 's/^Tests: it.*/Fixes: 123456789012 ("core: Break it")\nSeverity: oops; root\n&/' "$T/top/patches/linux-7.3/0001"*
	command_is git '[[ " $* " == *" am "* ]] && sed -i /^Cc:.stable/d "$T"/tmp/*/mails/*; exec /usr/bin/git "$@"'
	mkdir "$T/tmp"
	export T TMPDIR=$T/tmp
	refuses "upstream/b-one: 0001-one-Do-it.patch has no 'Cc: stable@vger.kernel.org' line"
}

# reproducer PATH: writes a patch that adds a test
reproducer() {
	printf 'From: A <a@b.example>\nSubject: [PATCH] tools: Crash\n\nSay why.\n\n---\n' >"$1"
	printf -- '--- /dev/null\n+++ b/tools/crash.c\n@@ -0,0 +1 @@\n+int crash;\n' >>"$1"
}

@test "upstream: a reproducer in security/ applies to the base, and is in no set" {
	fake_sets
	mkdir "$sets/security"
	reproducer "$sets/security/crash.patch"
	echo "A report that names crash.c" >"$sets/security/crash.txt"
	run -0 "$T/top/scripts/ship/upstream"
	! grep -rq crash "$T/top/dist/upstream" || false
	echo crash.patch >>"$sets/b-one"
	refuses "upstream/b-one names crash.patch, which is in upstream/security and must not be public"
	sed -i 's/^crash/selftests-crash/' "$sets/b-one"
	cp "$sets/security/crash.patch" "$sets/selftests-crash.patch"
	refuses "selftests-crash.patch contains tools/crash.c, which is in upstream/security and must not be public"
	sed -i /^selftests-crash/d "$sets/b-one"
	rm "$sets/selftests-crash.patch"
	patch_of crash one two >"$sets/security/crash.patch"
	refuses "git am rejects upstream/security/crash.patch: *"
}

@test "upstream: a missing NEEDS line and a checkpatch error fail, and old results are removed" {
	fake_sets
	mkdir -p "$T/top/dist/upstream/old"
	sed -i '/NEEDS/d' "$sets/a-two"
	run "$T/top/scripts/ship/upstream"
	one_line "upstream: git am rejects upstream/a-two: *kernel/core.c*"
	[ ! -e "$T/top/dist/upstream" ]
	sed -i '1a # NEEDS b-one' "$sets/a-two"
	program "$T/tree/scripts/checkpatch.pl" 'echo "0001.patch:9: WARNING: no"; exit 1'
	run "$T/top/scripts/ship/upstream"
	one_line "upstream: checkpatch, of upstream/b-one: 0001.patch:9: WARNING: no"
	[ ! -e "$T/top/dist/upstream" ]
}

@test "upstream: accepts no BASE" {
	run "$SCRIPTS/ship/upstream" 6.1
	one_line "usage: upstream *"
}
