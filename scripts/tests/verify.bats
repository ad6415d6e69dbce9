#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

setup() {
	set_up
	command_is dpkg-query 'echo installed'
}

@test "verify: a second run at the same time is refused" {
	mkdir -p "$BUILD"
	exec 8>"$BUILD/.lock"
	flock 8
	echo $$ >&8
	run "$SCRIPTS/verify" 6.1
	one_line "verify: another run (process $$) is using $BUILD; *"
}

@test "verify: a run that make check started does not wait for make check's lock" {
	mkdir -p "$BUILD"
	exec 8>"$BUILD/.lock"
	flock 8
	echo $$ >&8
	KSRC=$T LOCKED=$BUILD run "$SCRIPTS/verify" 6.1
	one_line "verify: KSRC=$T is not a kernel tree *"
	KSRC=$T LOCKED=$T/other run "$SCRIPTS/verify" 6.1
	one_line "verify: another run *"
}

@test "verify: waits for the children of a killed run" {
	mkdir -p "$BUILD"
	sleep 0 & # a process that has exited
	wait $!
	echo $! >"$BUILD/.lock"
	hold_until "$BUILD/.lock" waiting
	KSRC=$T run -1 bash -c 'set -o pipefail; "$0" 6.1 |& tee "$1"' "$SCRIPTS/verify" "$T/said"
	[ "${lines[0]}" = "waiting for the processes of a killed run to end" ]
	[[ ${lines[1]} == "verify: KSRC=$T is not a kernel tree"* ]]
}

@test "verify: a KSRC that is no kernel tree, or of another version, is refused" {
	KSRC=$T run "$SCRIPTS/verify" 6.1
	one_line "verify: KSRC=$T is not a kernel tree *"
	fake_tree "$T/tree" 5.10.1
	KSRC=$T/tree run "$SCRIPTS/verify" 6.1
	one_line "verify: KSRC=$T/tree is Linux 5.10.1, but BASE is 6.1; set BASE=5.10"
}

@test "KSRC: each verb uses the user's tree, if it is of the right base" {
	fake_tree "$T/tree" 6.6.1
	for verb in series-check prefixes mutants debug faults peers kabi; do
		KSRC=$T/tree run "$SCRIPTS/prove/$verb" 6.1
		one_line "$verb: KSRC=$T/tree is Linux 6.6.1, but BASE is 6.1; set BASE=6.6"
	done
	VERSION=6.1.9-1 KSRC=$T/tree run "$SCRIPTS/prove/mutants" 6.1
	one_line "mutants: KSRC=$T/tree is Linux 6.6.1, but BASE is 6.1; set BASE=6.6"
	# The base is from kernel.org, but KSRC needs no mirror. The patches do not apply to the fake tree.
	unset KERNEL_MIRROR
	KSRC=$T/tree run "$SCRIPTS/prove/series-check" --fast 6.6
	[[ $output == *"not ok"*"series 6.6"* && $output != *KERNEL_MIRROR* ]]
	cmp "$T/tree/kernel/core.c" "$BUILD"/ksrc-*/stock/kernel/core.c
}

@test "verify: a new run removes the results of an earlier one first" {
	mkdir -p "$BUILD"
	echo '{"verdict": "pass"}' >"$BUILD/results-6.1.json"
	KSRC=$T run "$SCRIPTS/verify" 6.1
	[ ! -e "$BUILD/results-6.1.json" ]
}

@test "deps: without root, prints the command to run in one line" {
	command_is dpkg-query '[[ $* == *quilt* ]] || echo installed'
	command_is id 'echo 1000'
	run "$SCRIPTS/deps"
	one_line "deps: packages are missing; run: sudo apt-get install --no-install-recommends quilt"
}

@test "deps: without dpkg, looks for the tools" {
	mkdir "$T/only"
	for tool in bash dirname realpath mkdir; do ln -s "$(command -v "$tool")" "$T/only"; done
	# shellcheck disable=SC2016
	for tool in $(sed -n '/ TOOLS=(/,/^)/s/.*"\(.*\)"/\1/p' "$SCRIPTS/deps"); do
		ln -sf /bin/true "$T/only/$tool"
	done
	PATH=$T/only run -0 "$SCRIPTS/deps"
	rm "$T/only/quilt"
	PATH=$T/only run "$SCRIPTS/deps"
	one_line "deps: install quilt, and the static libraries *"
	PATH=$T/only run -0 "$SCRIPTS/deps" --for probe
}

@test "deps: as root, installs the packages, and prints apt's error if that fails" {
	command_is dpkg-query '[[ $* == *quilt* ]] || echo installed'
	command_is id 'echo 0'
	command_is apt-get 'echo "$*" >>"'"$T"'/apt"'
	"$SCRIPTS/deps"
	grep -q 'install -y --no-install-recommends quilt' "$T/apt"
	command_is apt-get 'echo "E: no network"; exit 100'
	run -1 "$SCRIPTS/deps"
	[[ $output == *"E: no network"* && ${lines[-1]} == "deps: apt-get failed; the whole log is $BUILD/apt.log" ]]
}

@test "make: help is the default and fits on a screen; help-all lists every verb" {
	run -0 make --no-print-directory -C "$SCRIPTS/.."
	[ "$(wc -l <<<"$output")" -le 24 ]
	run -0 make --no-print-directory -C "$SCRIPTS/.." help-all
	[ "$(wc -L <<<"$output")" -le 80 ]
	for verb in $(sed -n 's/^\([a-z -]*\):.*/\1/p' "$SCRIPTS/../Makefile"); do
		[ "$verb" = help ] || [[ $output == *"make $verb "* ]]
	done
}

@test "verify: a read-only build folder is reported in one line" {
	mkdir "$BUILD"
	mount -t tmpfs -o ro tmpfs "$BUILD" 2>/dev/null || skip "cannot mount a tmpfs"
	run "$SCRIPTS/verify" 6.1
	umount "$BUILD"
	one_line "verify: cannot write to $BUILD"
}

@test "verify: a stale lock file, whatever its contents, does not block a run" {
	mkdir "$BUILD"
	for rubbish in 1 $$ -1 '' 'a b c'; do
		printf '%s' "$rubbish" >"$BUILD/.lock"
		KSRC=$T run "$SCRIPTS/verify" 6.1
		one_line "verify: KSRC=$T is not a kernel tree *"
	done
}

@test "verify: a file of KSRC that is replaced by an older one is copied with a new timestamp" {
	fake_tree "$T/tree"
	KSRC=$T/tree run "$SCRIPTS/verify" 6.1
	copy=$(echo "$BUILD"/ksrc-*/stock)
	cmp "$T/tree/kernel/core.c" "$copy/kernel/core.c"
	touch "$T/stamp"
	sleep 0.1
	# The file has the same size, as after patch -R or "mv core.c.orig core.c".
	sed -i 's/line10;/line99;/' "$T/tree/kernel/core.c"
	touch -d '1 day ago' "$T/tree/kernel/core.c"
	KSRC=$T/tree run "$SCRIPTS/verify" 6.1
	cmp "$T/tree/kernel/core.c" "$copy/kernel/core.c"
	[ "$copy/kernel/core.c" -nt "$T/stamp" ]
	[ "$copy/include/core.h" -ot "$T/stamp" ]
}

# found VERDICT SUBJECT: writes the results of make verify BASE=6.1.
found() {
	mkdir -p "$BUILD"
	printf '{\n "verdict": "%s",\n "of": "%s",\n "complaints": [], "stock": {"logs": "elsewhere/stock-boot"}}\n' "$1" "$2" >"$BUILD/results-6.1.json"
}

@test "dist: requires a successful measurement of the current patches and tests" {
	now=$(bash -c ". '$SCRIPTS/lib.sh'; lab subject 6.1")
	found fail "$now"
	run "$SCRIPTS/ship/dist" 6.1
	one_line "dist: the last make verify BASE=6.1 failed; run it again"
	found pass 0123456789abcdef
	run "$SCRIPTS/ship/dist" 6.1
	one_line "dist: patches or tests have changed since the measurement; run make verify BASE=6.1 again"
	found pass "$now"
	fake_tree "$BUILD/linux-6.1.9-1/stock"
	VERSION=6.1.9-1 run "$SCRIPTS/ship/dist" 6.1
	one_line "dist: the measurement was made on another kernel than $BUILD/linux-6.1.9-1; run make verify BASE=6.1 again"
}

@test "Ctrl-C and SIGTERM terminate a script and the scripts that it runs" {
	printf 'import lab, sys\nfrom lab import tree\nlab.run(lambda: tree.progress("a", sys.argv[2:], sys.argv[1]))\n' >"$T/verb"
	for signal in INT TERM; do
		# The test's shell starts background commands with SIGINT ignored, so reset it.
		PYTHONPATH=$SCRIPTS setsid env --default-signal=INT python3 -B "$T/verb" "$T/log" \
			python3 -B "$T/verb" "$T/log2" sleep 60 &
		script=$!
		for ((i = 0; i < 100; i++)); do ! pgrep -s $script -x sleep >/dev/null || break; sleep 0.1; done
		# Ctrl-C reaches all processes, kill(1) only the script.
		if [ $signal = INT ]; then kill -INT -- -$script; else kill $script; fi
		run wait $script
		[ "$status" -ne 0 ]
		for ((i = 0; i < 50; i++)); do pgrep -s $script >/dev/null || break; sleep 0.1; done
		if pgrep -s $script; then
			kill -9 -- -$script
			return 1
		fi
	done
}

@test "the subject of a verdict changes with every patch, test and option, but not with a message or a comment" {
	mkdir "$T/repo"
	(cd "$SCRIPTS/.." && cp -r scripts patches selftests Kconfig.fragment "$T/repo")
	subject() { ARCH=${1-} bash -c ". '$T/repo/scripts/lib.sh'; lab subject 6.1"; }
	right=$(subject)
	arm64=$(subject arm64)
	for file in patches/linux-6.1/0101-*.patch patches/expect/linux-6.1/stock-fails \
		Kconfig.fragment $(cd "$T/repo" && find selftests -name '*.cc' -o -name '*.bpf.c' -o -name '*.h' | sed -n '1p;10p;20p;30p'); do
		cp "$T/repo/"$file "$T/saved"
		echo "# more" >>"$(echo "$T/repo/"$file)"
		[ "$(subject)" != "$right" ]
		cp "$T/saved" "$(echo "$T/repo/"$file)"
	done
	echo "/* don't: more */ // and \"more" >>"$T/repo/selftests/tests/effects.cc"
	[ "$(subject)" = "$right" ]
	sed -i '/^Subject: /s/$/ again/' "$T/repo/patches/linux-6.1"/0101-*.patch
	[ "$(subject)" = "$right" ]
	# Nor with what is not compiled for the architecture.
	sed -i 's/^+.*saved_steps\[8\]/& /' "$T/repo/patches/linux-6.1"/0403-*.patch
	[ "$(subject)" = "$right" ]
	[ "$(subject arm64)" != "$arm64" ]
	sed -i /^0101/d "$T/repo/patches/linux-6.1/series"
	[ "$(subject)" != "$right" ]
}

@test "make: a variable is one argument, and never code for the shell" {
	local verb
	cd "$SCRIPTS/.."
	for verb in verify fetch dist debug kabi mutants stress soak; do
		run -2 make -s "$verb" BASE="9.9'; touch $T/run; '" KSRC="$T"
		[[ ${lines[0]} == "$verb: no such base: 9.9'; touch $T/run; ' (available: "* ]]
	done
	run make -s soak N="1; touch $T/run"
	[[ ${lines[0]} == "soak: N must be a number of at least 1, not '1; touch $T/run'" ]]
	run make -s livepatch KERNEL="1; touch $T/run"
	[[ ${lines[0]} == "build: not a kernel name as uname -r prints it: 1; touch $T/run" ]]
	run make -s apply KSRC="$T\"; touch $T/run; \""
	[[ ${lines[0]} == "apply: $T\"; touch $T/run; \" is not a kernel tree "* ]]
	[ ! -e "$T/run" ]
}

@test "make clean: removes the folder in BUILD, even with a space in its name, and nothing else" {
	mkdir -p "$T/a b" "$T/a"
	make -s -C "$SCRIPTS/.." clean BUILD="$T/a b"
	[ ! -e "$T/a b" ]
	[ -d "$T/a" ]
}

@test "make selftests: stops if the source cannot be fetched" {
	cd "$SCRIPTS/.."
	run make -s --no-print-directory selftests BASE=9.9
	[[ ${lines[0]} == "fetch: no such base: 9.9 "* && ${lines[1]} == make*": *** "* ]]
	[ "${#lines[@]}" -eq 2 ]
}

@test "deps: an option or anything else that is not a package's name does not reach apt" {
	command_is apt-get 'echo "$*" >"'"$T"'/apt"'
	for package in --reinstall '' 'a b'; do
		run "$SCRIPTS/deps" "$package"
		one_line "deps: not the name of a package: '$package'"
	done
	run -2 "$SCRIPTS/deps" --for
	one_line "usage: deps *"
	BUILD="$T/a b" run "$SCRIPTS/deps"
	one_line "deps: *$T/a b: a path with spaces, *"
	[ ! -e "$T/apt" ]
}

@test "verify: a wrong ACCEL or RACE_SECONDS is refused before anything is built" {
	ACCEL=xen run "$SCRIPTS/verify" 6.1
	one_line "verify: ACCEL=xen: no such accelerator (available: auto kvm tcg)"
	RACE_SECONDS=x run "$SCRIPTS/verify" 6.1
	one_line "verify: RACE_SECONDS must be a number of seconds, not 'x'"
	[ ! -e "$BUILD" ]
}

@test "verify: a base without stock-fails, or with an unfinished series, is refused at once" {
	mkdir "$T/top"
	cp -r "$SCRIPTS/../"{scripts,patches,selftests,Kconfig.fragment} "$T/top"
	mkdir "$T/top/patches/linux-6.20" "$T/top/patches/linux-foo"
	echo "# BASE linux-6.20" | tee "$T/top/patches/linux-foo/series" >"$T/top/patches/linux-6.20/series"
	run "$T/top/scripts/verify" 6.20
	one_line "verify: patches/expect/linux-6.20/stock-fails does not exist; create it, empty for a new base"
	run "$T/top/scripts/fetch" 6.20
	one_line "fetch: $T/top/patches/linux-6.20/series does not begin with a '# BASE linux-X.Y VERSION' line"
	run "$T/top/scripts/verify" foo
	one_line "verify: no such base: foo (available: 5.10 *)"
}

@test "check: refuses PART and an unknown ARCH before it starts" {
	PART=feature run "$SCRIPTS/check"
	one_line "check: PART= is for make apply, verify and dist; leave it out"
	ARCH=armm64 run "$SCRIPTS/check"
	one_line "check: no such architecture: armm64 (available: arm64 x86)"
	[ ! -e "$BUILD" ]
}

@test "lint: a file that does not exist is an error, not a success" {
	run -1 "$SCRIPTS/lint" README.md nosuch
	one_line "lint: no such file: nosuch"
}

@test "stock: a name that is not a kernel's is refused before apt is asked" {
	run "$SCRIPTS/prove/stock" 6.1.0-56-amd64 foo
	one_line "stock: not a kernel name as uname -r prints it: foo"
}

@test "image: a build folder that cannot be written is one line" {
	command_is rm 'echo "rm: Permission denied" >&2; exit 1'
	command_is mkdir 'exit 1'
	mv "$T/bin" "$T/denied"
	PATH=$T/denied:$PATH run "$SCRIPTS/image" 6.1.0-56-amd64
	one_line "image: cannot write to $BUILD"
}

@test "boot-image: a call without a command is refused before the kernel is downloaded" {
	command_is apt-get 'echo "$*" >"'"$T"'/apt"'
	run "$SCRIPTS/boot-image" 6.1.0-56-amd64 "$T/out" --timeout 5
	one_line "usage: boot-image *"
	[ ! -e "$T/apt" ]
}

@test "version: --version prints the version, as with every program" {
	[ "$("$SCRIPTS/ship/version" --version)" = "$("$SCRIPTS/ship/version")" ]
}
