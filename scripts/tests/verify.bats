#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

@test "verify: no such base" {
	run "$SCRIPTS/verify" 4.19
	one_line "verify: no such base: 4.19 (there is: *6.1*)"
}

@test "verify: two at once" {
	mkdir -p "$BUILD"
	exec 8>"$BUILD/.lock"
	flock 8
	echo $$ >&8
	run "$SCRIPTS/verify" 6.1
	one_line "verify: another run (process $$) is using $BUILD; *"
}

@test "verify: what a killed run left behind is waited for" {
	mkdir -p "$BUILD"
	sleep 0 & # a process that is no more
	wait $!
	echo $! >"$BUILD/.lock"
	(flock 8; sleep 2) 8>>"$BUILD/.lock" 3>&- &
	for _ in $(seq 50); do flock -n "$BUILD/.lock" true || break; sleep 0.1; done
	command_is dpkg-query 'echo installed'
	KSRC=$T run "$SCRIPTS/verify" 6.1
	[ "${lines[0]}" = "waiting for the rest of a killed run to end" ]
	[[ ${lines[1]} == "verify: KSRC=$T is not a kernel tree"* ]]
}

@test "verify: KSRC that is no kernel tree, or another version" {
	command_is dpkg-query 'echo installed'
	KSRC=$T run "$SCRIPTS/verify" 6.1
	one_line "verify: KSRC=$T is not a kernel tree *"
	fake_tree "$T/tree" 5.10.1
	KSRC=$T/tree run "$SCRIPTS/verify" 6.1
	one_line "verify: KSRC=$T/tree is Linux 5.10.1, not 6.1; *"
}

@test "verify: results of an earlier run are gone as soon as one starts" {
	command_is dpkg-query 'echo installed'
	mkdir -p "$BUILD"
	echo '{"verdict": "pass"}' >"$BUILD/results-6.1.json"
	KSRC=$T run "$SCRIPTS/verify" 6.1
	[ ! -e "$BUILD/results-6.1.json" ]
}

@test "deps: a normal user gets the one line to run" {
	command_is dpkg-query '[[ $* == *quilt* ]] || echo installed'
	command_is id 'echo 1000'
	run "$SCRIPTS/deps"
	one_line "deps: packages are missing; run: sudo apt-get install --no-install-recommends quilt"
}

@test "deps: root has them installed, and sees what apt says when it cannot" {
	command_is dpkg-query '[[ $* == *quilt* ]] || echo installed'
	command_is id 'echo 0'
	command_is apt-get 'echo "$*" >>"'"$T"'/apt"'
	"$SCRIPTS/deps"
	grep -q 'install -y --no-install-recommends quilt' "$T/apt"
	command_is apt-get 'echo "E: no network"; exit 100'
	run "$SCRIPTS/deps"
	[ "$status" -eq 1 ]
	[[ $output == *"E: no network"* && ${lines[-1]} == "deps: apt-get failed; the whole log is $BUILD/apt.log" ]]
}

@test "make: help is the default, names every verb, and fits on a screen" {
	run make --no-print-directory -C "$SCRIPTS/.."
	[ "$status" -eq 0 ] && [ "${#lines[@]}" -le 24 ]
	for verb in $(sed -n 's/^\([a-z]*\):.*/\1/p' "$SCRIPTS/../Makefile"); do
		[ "$verb" = help ] || [[ $output == *"make $verb "* ]]
	done
}
