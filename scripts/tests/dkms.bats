#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
# The package of the live patch, as dkms runs it, with the files of scripts/livepatch/deb. The machine's
# folders are in $T, and its kernel headers "build" a module as a program.
load common

kernel=6.1.0-99-amd64
name=perf_bpf_filter_livepatch

# Lines of text that a shell, make, printf or the compiler might execute or expand. Each command in them would
# create a file in $T/ran.
hostile() {
	printf '%s\n' "an apostrophe's" "'; touch $T/ran/quoted; '" "\"; touch $T/ran/in-quotes; \"" \
		"\$(touch $T/ran/shell)" "\$(shell touch $T/ran/make)" "\$\$(touch $T/ran/dollars)" "\`touch $T/ran/backquotes\`" \
		"'\"\$(touch $T/ran/both)\"'" "& touch $T/ran/and &" "; touch $T/ran/semicolon #" "> $T/ran/redirected" \
		'one \ two \\ \n \' '%s %n %d %' '*/ ??/ // #include <none.h>' "\$HOME" -e
	printf '%b\n' 'Gr\0303\0274n \0302\0233 \0377' '\033[31mred\033[0m \007 \r' 'a\tb\001\177'
}

# harmless FILE: prints the part of it that is allowed in a C string: printable ASCII without quotes,
# backslashes and trigraphs.
harmless() {
	LC_ALL=C tr -cd ' !#-&(-[]-~' <"$1" | tr -s '?'
}

# Creates the package's folder, $pkg, the machine's folders in $T, and the folder in which dkms builds,
# $T/dkms.
packaged() {
	pkg=$T/usr/src/perf-bpf-filter-livepatch-1.0
	mkdir -p "$pkg/scripts" "$pkg/patches/linux-6.1" "$T/dkms" "$T/ran" "$T/var/lib/dpkg"
	command_is logger 'echo "$*" >>"'"$T"'/syslog"'
	cp -r "$SCRIPTS"/{lib.sh,lab,arch,debian,fetch,image,livepatch} "$pkg/scripts/"
	cp -r "$SCRIPTS/../patches/livepatch" "$pkg/patches/"
	cp "$SCRIPTS/../patches/linux-6.1/series" "$pkg/patches/linux-6.1/"
	find "$pkg/scripts/livepatch" -type f -exec sed -i "s|/var/|$T/var/|g; s|/lib/modules/|$T/modules/|g; s|/boot/|$T/boot/|g
		s|/sys/|$T/sys/|g; s|/proc/\[|$T/proc/[|g; s|/proc$T/sys/|$T/proc/sys/|g; s|/sbin/modprobe|modprobe|g; s|/usr/src/[^ ]*@VERSION@|$pkg|g" {} +
	cache=$T/var/cache/perf-bpf-filter-livepatch
	headers=$T/modules/$kernel/build
	mkdir -p "$headers/include/linux"
	echo CONFIG_LIVEPATCH=y >"$headers/.config"
	cat >"$headers/include/linux/module.h" <<-'END_OF_FILE'
		#include <errno.h>
		#include <stdio.h>
		#define __init
		#define pr_warn printf
		#define KBUILD_MODNAME "stub"
		#define module_init(f) int main(void) { return f() != -ENODEV; }
		#define MODULE_LICENSE(text) _Static_assert(1, text)
		#define MODULE_DESCRIPTION(text) _Static_assert(1, text)
	END_OF_FILE
	printf 'modules:\n\t@gcc -std=gnu11 -Wall -Werror -Iinclude $(KCFLAGS) -o $(M)/%s.ko $(M)/%s.c\n' $name $name >"$headers/Makefile"
}

# Runs make like dkms, in its copy of the sources. An installation would fail if this fails.
dkms_make() {
	cd "$T/dkms" && rm -rf "$name.ko" stub && run -0 "$pkg/scripts/livepatch/dkms/make" "$kernel"
}

# build_says FILE [CODE]: replaces scripts/livepatch/build with a script whose last line of output is FILE's
# contents.
build_says() {
	printf '#!/bin/sh\necho first\ncat "%s"\necho\nexit %d\n' "$1" "${2:-1}" >"$pkg/scripts/livepatch/build"
}

# machine STATUS: fakes what build checks before it fetches the source. STATUS is the dpkg status of each
# package.
machine() {
	local tools
	mkdir -p "$T/boot"
	echo image >"$T/boot/vmlinuz-$kernel"
	command_is id 'echo 0'
	command_is dpkg-query 'case $* in *Version*) printf 6.1.192-2 ;; *) printf '"$1"' ;; esac'
	tools=$cache/livepatch/tools-$(. /etc/os-release && echo "$VERSION_ID")
	for tool in symbols cut seal; do program "$tools/$tool" ''; done
}

# no_network: apt knows the source package, but cannot download it. $T/asked has apt-get's arguments.
no_network() {
	command_is apt-cache 'echo "linux-source-6.1 | 6.1.192-2 | x"'
	command_is apt-get 'echo "$*" >>"'"$T"'/asked"; echo "E: Could not resolve '"'mirror'"'"; exit 100'
}

# stub_says PATTERN: the module prints this when it is loaded, and no part of the text was executed.
stub_says() {
	[ -z "$(ls "$T/ran")" ] || { printf 'was run: %s\n' "$(ls "$T/ran")" && return 1; }
	run -0 "$T/dkms/$name.ko"
	# shellcheck disable=SC2053
	[[ $output == "stub: no live patch for this kernel: "$1 ]]
}

@test "dkms: text from a log is a string in the stub, and no part of it is executed" {
	packaged
	hostile >"$T/lines"
	# Test each line alone, as one may hide the effect of another, and then all at once.
	tr '\n' ' ' <"$T/lines" >>"$T/lines"
	while IFS= read -r line; do
		printf '%s' "$line" >"$T/message"
		build_says "$T/message"
		dkms_make
		why=$(harmless "$T/message")
		[ -n "$why" ]
		stub_says "$(printf '%q' "$why")"
	done <"$T/lines"
}

@test "dkms: no error message makes the installation of a kernel fail" {
	packaged
	# Take the messages in the source that contain an apostrophe, a dollar or a backquote.
	grep -hoE '\bdie\(?.*"[^"]*"' "$SCRIPTS"/livepatch/{build,*.cc} "$SCRIPTS"/{lib.sh,fetch,image,debian} | grep "['\`\$]" >"$T/messages"
	[ "$(wc -l <"$T/messages")" -ge 20 ]
	while IFS= read -r message; do
		printf '%s' "$message" >"$T/message"
		build_says "$T/message"
		dkms_make
		stub_says "$(printf '%q' "$(harmless "$T/message")")"
	done < <(grep "'" "$T/messages" | head -n 5; grep '`' "$T/messages" | head -n 2; grep '\$' "$T/messages" | head -n 3)
}

@test "dkms: the reason phrase of an HTTP server passes through apt-get and fetch as text" {
	packaged
	cat >"$T/packages" <<-END_OF_FILE
		Package: linux-source-6.1
		Version: 6.1.192-2
		Architecture: all
		Maintainer: t <t@localhost>
		Filename: pool/linux-source-6.1_6.1.192-2_all.deb
		Size: 1000
		SHA256: $(printf 0%.0s {1..64})
		Description: t
	END_OF_FILE
	# apt accepts at most 359 bytes of the reason phrase.
	printf '%s' "Not'Found \$(shell touch $T/ran/1) \`touch $T/ran/2\` ';touch $T/ran/3;' \"x\" \\ %s" $' \303\274 \e[31mred' >"$T/reason"
	python3 "$BATS_TEST_DIRNAME/reason.py" "$T/packages" "$T/reason" >"$T/port" 2>"$T/served" 3>&- &
	server=$!
	for _ in $(seq 100); do [ -s "$T/port" ] && break; sleep 0.1; done
	mkdir -p "$T"/apt/{state/lists/partial,cache/archives/partial}
	echo "deb [trusted=yes] http://127.0.0.1:$(cat "$T/port")/ ./" >"$T/apt/sources.list"
	cat >"$T/apt/apt.conf" <<-END_OF_FILE
		Dir::Etc::sourcelist "$T/apt/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::State "$T/apt/state";
		Dir::State::status "/dev/null";
		Dir::Cache "$T/apt/cache";
		#clear APT::Update;
		#clear DPkg;
		Acquire::http::Proxy "DIRECT";
		Acquire::http::Timeout "10";
		Acquire::Retries "0";
		Acquire::Languages "none";
		Acquire::ForceIPv4 "true";
	END_OF_FILE
	export APT_CONFIG=$T/apt/apt.conf
	# The package lists are up to date.
	apt-get update >"$T/update.log" 2>&1
	[[ $(apt-cache madison linux-source-6.1) == *" 6.1.192-2 "* ]]
	machine installed
	dkms_make
	kill $server
	[[ $(tail -n 1 "$cache/$kernel.log") == "fetch: cannot download linux-source-6.1 6.1.192-2: "*"404 "*"Not'Found"*"touch $T/ran/1"* ]]
	stub_says "fetch: cannot download linux-source-6.1 6.1.192-2: *404 *NotFound \$(shell touch $T/ran/1) \`touch $T/ran/2\` ;touch $T/ran/3; x  %s*"
}

@test "dkms: names and paths with shell commands are refused with one line" {
	mkdir "$T/ran"
	for bad in "\$(touch $T/ran/1)" "6.1\`touch $T/ran/2\`" "6.1;touch $T/ran/3" '../../x' '6.1\x2e1' "6.1'" $'6.1\n2'; do
		run "$SCRIPTS/fetch" 6.1 "$bad"
		one_line "fetch: not the version of a package or of Linux: *"
		run "$SCRIPTS/fetch" "$bad"
		one_line "fetch: no such base: *"
		run "$SCRIPTS/image" "$bad"
		one_line "image: not a kernel name as uname -r prints it: *"
		run "$SCRIPTS/image" 6.1.0-56-amd64 "$bad"
		one_line "image: not the name of a Debian release: *"
		run "$SCRIPTS/livepatch/build" "$bad"
		one_line "build: not a kernel name as uname -r prints it: *"
		[ "$(id -u)" -ne 0 ] || run "$SCRIPTS/livepatch/try-deb" 6.1.0-50-amd64 "$bad"
		one_line "*: not a kernel name as uname -r prints it: *"
	done
	for bad in '$(touch ran)' '`touch ran`' "a';touch ran;'" 'a&b' 'a\b' 'a"b' $'a\nb'; do
		BUILD=$T/$bad run "$SCRIPTS/image" 6.1.0-56-amd64
		one_line "image: * or $T/*: a path with spaces, *"
		BUILD=$T/$bad run "$SCRIPTS/try" 6.1
		one_line "try: * or $T/*: a path with spaces, *"
		[ -z "$(find "$T" -mindepth 1 ! -path "$T/ran" ! -path "$T/bin")" ]
	done
	[ -z "$(ls "$T/ran")" ]
}

@test "dkms: no message prints control characters to the terminal" {
	run bash -c '. "$1/lib.sh"; die "$2"' x "$SCRIPTS" $'404 \e[31mNot \a\r\n Found \303\274'
	[ "$output" = $'x: 404  [31mNot     Found \303\274' ]
	run python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); sys.argv[0] = "x"; import lab; lab.die(sys.argv[2])' "$SCRIPTS" $'404 \e[31mNot \a\r\n \302\233Found \303\274'
	[ "$output" = $'x: 404  [31mNot      Found \303\274' ]
}

@test "dkms: during an upgrade, half-configured tools are used, and apt only downloads the source" {
	packaged
	machine half-configured
	no_network
	dkms_make
	stub_says "fetch: cannot download linux-source-6.1 6.1.192-2: E: Could not resolve mirror; *"
	[[ $(cat "$T/asked") == *"download linux-source-6.1=6.1.192-2" ]]
	[ -e "$cache/$kernel.again" ]
	[[ $(cat "$cache/$kernel.why") == "fetch: cannot download "* ]]
	[[ $(cat "$T/syslog") == *"no live patch for $kernel: fetch: cannot download "* ]]
	# When a user runs build, the same error has exit code 1.
	BUILD=$cache run -1 "$pkg/scripts/livepatch/build" "$kernel"
	[[ ${lines[-1]} == "fetch: cannot download "* ]]
}

@test "dkms: missing packages are not installed; the build is repeated at the next boot" {
	packaged
	machine installed
	no_network
	# Everything except g++, as while its package is being unpacked.
	mkdir "$T/usr/bin"
	ln -s /usr/bin/* "$T/usr/bin/"
	rm "$T"/usr/bin/g++*
	PATH=$T/bin:$T/usr/bin dkms_make
	stub_says "build: packages are missing, or not unpacked yet: g++ libelf-dev"
	[ ! -e "$T/asked" ]
	[ -e "$cache/$kernel.again" ]
}

@test "dkms: a permanent error is reported, and the build is not repeated" {
	packaged
	machine installed
	no_network
	: >"$headers/.config"
	touch "$cache/$kernel.again"
	dkms_make
	stub_says "build: $kernel cannot be patched live: CONFIG_LIVEPATCH is not set"
	[ ! -e "$cache/$kernel.again" ]
	[[ $(cat "$cache/$kernel.why") == "build: $kernel cannot be patched live: "* ]]
}

@test "dkms: a full disk and a killed build are temporary errors" {
	packaged
	echo "cc1: error: No space left on device" >"$T/message"
	build_says "$T/message"
	dkms_make
	stub_says "cc1: *"
	[ -e "$cache/$kernel.again" ]
	echo "compiling" >"$T/message"
	build_says "$T/message" 143
	dkms_make
	stub_says "build: killed, exit status 143; its last line was: compiling"
	[ -e "$cache/$kernel.again" ]
	# The interpreter is missing, as while Python is being unpacked.
	printf '#!%s/none/python3\n' "$T" >"$pkg/scripts/livepatch/build"
	dkms_make
	stub_says "*/scripts/livepatch/build: *"
	[ -e "$cache/$kernel.again" ]
	printf '#!/bin/sh\nexit 2\n' >"$pkg/scripts/livepatch/build"
	dkms_make
	stub_says "build: exit status 2 without a message"
	[ ! -e "$cache/$kernel.again" ]
}

@test "dkms: on a full disk the stub is built after the files of the failed build are removed" {
	packaged
	mkdir -p "$cache"
	mount -t tmpfs -o size=1m none "$cache" || skip "cannot mount a file system"
	program "$pkg/scripts/livepatch/build" 'cat /dev/zero >"$BUILD/linux-6.1.tar"; exit 1'
	dkms_make
	stub_says "*"
	[ -e "$cache/$kernel.again" ]
	[ ! -e "$cache/linux-6.1.tar" ]
	[ -s "$cache/$kernel.why" ]
	umount "$cache"
}

@test "dkms: postinst builds the module for each kernel that has headers" {
	packaged
	mkdir -p "$T/modules/6.1.0-98-amd64/build" "$T/modules/6.1.0-97-amd64" "$cache"
	command_is dkms 'echo "$*" >>"'"$T"'/steps"; case $* in *-98-*) echo why >"'"$cache"'/6.1.0-98-amd64.why"; exit 1 ;; esac'
	command_is uname 'echo 6.1.0-97-amd64'
	command_is systemctl true
	run -0 sh "$pkg/scripts/livepatch/dkms/postinst" configure
	[ "$(grep -c '^install ' "$T/steps")" -eq 2 ]
	grep -q -- '^install .* -k 6.1.0-98-amd64$' "$T/steps"
	grep -q -- "^install .* -k $kernel\$" "$T/steps"
	[[ $output == *"no live patch for 6.1.0-98-amd64: why"* ]]
	[[ $output == *"install linux-headers-6.1.0-97-amd64"* ]]
}

# builds_module: replaces scripts/livepatch/build with a script that succeeds
builds_module() {
	program "$pkg/scripts/livepatch/build" 'mkdir -p "$BUILD/livepatch/$1" && echo module >"$BUILD/livepatch/$1/'$name'.ko"'
}

# A fake dkms that builds like the real one, and installs to $T/installed.
fake_dkms() {
	running=$(uname -r)
	cp -r "$T/modules/$kernel" "$T/modules/$running"
	command_is dkms 'echo "$*" >>"'"$T"'/steps"
[[ $* == "$1 --force -m perf-bpf-filter-livepatch -v 1.0 -k '"$running"'" ]] || exit 9
cd "'"$T"'/dkms" && case $1 in
build) rm -f '$name'.ko && "'"$pkg"'/scripts/livepatch/dkms/make" "${*: -1}" ;;
install) cp '$name'.ko "'"$T"'/installed" ;;
esac'
}

@test "dkms: again repeats a failed build, and prints one line for each result" {
	packaged
	fake_dkms
	mkdir -p "${cache%/*}"
	echo "no network" >"$T/message"
	build_says "$T/message" 75
	run "$pkg/scripts/livepatch/dkms/again"
	one_line "no live patch for $running: no network; see $cache/$running.log; the next attempt is at the next boot"
	build_says "$T/message" 1
	run "$pkg/scripts/livepatch/dkms/again"
	one_line "no live patch for $running: no network; see $cache/$running.log"
	build_says "$T/message" 75
	run "$pkg/scripts/livepatch/dkms/again"
	builds_module
	run -0 "$pkg/scripts/livepatch/dkms/again"
	[ "$output" = "the live patch for $running is built" ]
	[ "$(cat "$T/installed")" = module ]
	[ ! -e "$cache/$running.again" ]
	[ ! -e "$cache/$running.why" ]
	command_is dkms 'exit 3'
	run "$pkg/scripts/livepatch/dkms/again"
	one_line "no live patch for $running: dkms failed, see $cache/dkms.log; the next attempt is at the next boot"
	[ -e "$cache/$running.again" ]
}

@test "dkms: again waits until apt has exited" {
	packaged
	fake_dkms
	mkdir -p "${cache%/*}"
	builds_module
	python3 -c 'import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(3)
open(sys.argv[2], "a").write("apt has ended\n")' "$T/var/lib/dpkg/lock-frontend" "$T/steps" >"$T/locked" 3>&- &
	for _ in $(seq 100); do [ -s "$T/locked" ] && break; sleep 0.1; done
	run -0 "$pkg/scripts/livepatch/dkms/again"
	[ "$(cut -d ' ' -f 1 "$T/steps" | xargs)" = "apt build install" ]
	sed -i 's/^WAIT = .*/WAIT = 0/' "$pkg/scripts/livepatch/dkms/again"
	flock_by_apt=$(python3 -c 'import fcntl, subprocess, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print(subprocess.run([sys.argv[2]], capture_output=True, text=True).stderr, end="")' "$T/var/lib/dpkg/lock-frontend" "$pkg/scripts/livepatch/dkms/again")
	[[ $flock_by_apt == "no live patch for $running: apt has held $T/var/lib/dpkg/lock-frontend for 0 minutes; "* ]]
}

@test "dkms: systemd accepts the units" {
	mkdir -p "$T/units"
	for unit in "" -build; do
		file=$SCRIPTS/livepatch/dkms/${unit:+build.}service
		sed "s/@VERSION@/1.0/; s,^Exec\([A-Za-z]*\)=/usr/src/[^ ]*,Exec\1=/bin/true," "$file" >"$T/units/perf-bpf-filter-livepatch$unit.service"
	done
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	run -0 systemd-analyze verify --man=no "$T"/units/*.service
	[ -z "$output" ]
}

# A fake kernel in $T/sys that accepts the live patch: insmod and modprobe start a transition, which completes
# if the file "ends" exists. Task 7, whose name a user has chosen, delays the transition.
fake_kernel() {
	live=$T/sys/kernel/livepatch/$name
	mkdir -p "$T/sys/kernel/livepatch" "$T/sys/module" "$T"/proc/7/task/7 "$T/proc/sys/kernel"
	echo 0 >"$T/proc/sys/kernel/panic_on_warn"
	printf '%b' 'worker\0033[31m%s' >"$T/proc/7/task/7/comm"
	cat >"$T/bin/insmod" <<-END_OF_FILE
		#!/bin/bash
		[ ! -e "$T/refused" ] || { cat "$T/refused" >&2; exit 1; }
		# modprobe calls it success if the module is there already.
		[ ! -e "$T/sys/module/$name" ] || { [[ "\$*" != *--first-time* && \$0 == *modprobe ]]; exit; }
		mkdir "$live" "$T/sys/module/$name"
		echo 1 >"$live/enabled"; echo 1 >"$live/transition"; echo 0 >"$T/proc/7/task/7/patch_state"
		exec 3>&- 
		kernel() {
			for _ in {1..100}; do
				sleep 0.1
				[ -e "$live" ] || return
				if [ -e "$T/ends" ]; then echo 0 >"$live/transition"; echo -1 >"$T/proc/7/task/7/patch_state"; fi
				if [ "\$(cat "$live/enabled")" = 0 ] && [ ! -e "$T/stays" ]; then rm -r "$live"; fi
			done
		}
		kernel >/dev/null 2>&1 &
	END_OF_FILE
	chmod +x "$T/bin/insmod"
	cp "$T/bin/insmod" "$T/bin/modprobe"
	command_is rmmod 'rm -r "'"$T"'/sys/module/$1"'
}

# unit -STATUS Start|Stop: runs the unit's command.
unit() {
	local command
	command=$(sed -n "s/^Exec$2=//p" "$pkg/scripts/livepatch/dkms/service")
	# shellcheck disable=SC2086
	LIMIT=2 run "$1" $command
}

@test "dkms: the unit is active when the live patch is in force" {
	packaged
	fake_kernel
	touch "$T/ends"
	unit -0 Start
	[ "$(cat "$live/transition")$(cat "$live/enabled")" = 01 ]
	unit -0 Stop
	[ ! -e "$live" ]
	[ ! -e "$T/sys/module/$name" ]
}

@test "dkms: if the transition does not complete, the unit fails, names the task, and unloads the live patch" {
	packaged
	fake_kernel
	unit -1 Start
	[ "${lines[0]}" = "cycle: $name is not in force after 2 s; delayed by 7 (worker[31m%s)" ]
	[ ! -e "$live" ]
	[ ! -e "$T/sys/module/$name" ]
}

@test "dkms: the unit fails if the live patch is loaded already; a module left in memory is replaced" {
	packaged
	fake_kernel
	mkdir -p "$live" "$T/sys/module/$name"
	echo 0 >"$live/enabled"
	echo 1 >"$live/transition"
	unit -1 Start
	one_line "cycle: $name is loaded already, enabled 0, in transition 1; unload it first: *"
	echo 1 >"$live/enabled"
	echo 0 >"$live/transition"
	unit -1 Start
	one_line "cycle: $name is loaded already, enabled 1, in transition 0; *"
	# An unload was interrupted: the live patch is disabled, but the module is still in memory.
	rm -r "$live"
	touch "$T/ends"
	unit -0 Start
	[ "$(cat "$live/transition")$(cat "$live/enabled")" = 01 ]
}

@test "dkms: unloading has a time limit, and names the task that delays it" {
	packaged
	fake_kernel
	touch "$T/ends" "$T/stays"
	unit -0 Start
	rm "$T/ends"
	echo 1 >"$T/proc/7/task/7/patch_state"
	unit -1 Stop
	one_line "cycle: $name is still in use after 2 s, by 7 (worker[[]31m%s); it will be unloaded when these tasks leave the kernel"
	rm -r "$live"
	unit -0 Stop
	unit -1 Stop
}

@test "dkms: with panic_on_warn, a live patch whose unloading may warn stays loaded" {
	packaged
	fake_kernel
	touch "$T/ends"
	unit -0 Start
	echo 1 >"$T/proc/sys/kernel/panic_on_warn"
	mkdir "$T/sys/module/$name/parameters"
	echo Y >"$T/sys/module/$name/parameters/other_came"
	unit -1 Stop
	one_line "cycle: kernel.panic_on_warn is set, and unloading $name may print a warning, *"
	[ "$(cat "$live/enabled")" = 1 ]
	rm "$T/sys/module/$name/parameters/other_came"
	unit -1 Stop
	one_line "cycle: kernel.panic_on_warn is set, and unloading $name may print a warning, *"
	echo N >"$T/sys/module/$name/parameters/other_came"
	unit -0 Stop
}

@test "dkms: the unit prints why there is only a stub" {
	packaged
	fake_kernel
	mkdir -p "$cache"
	echo "modprobe: ERROR: No such device" >"$T/refused"
	echo "build: cannot" >"$cache/$(uname -r).why"
	unit -1 Start
	[ "${lines[-1]}" = "no live patch for $(uname -r): build: cannot" ]
}

@test "dkms: parallel builds for two kernels do not affect each other" {
	packaged
	cp -r "$T/modules/$kernel" "$T/modules/6.1.0-98-amd64"
	cat >"$pkg/scripts/livepatch/build" <<-END_OF_FILE
		#!/bin/sh
		mkdir -p "\$BUILD/livepatch/\$1" && echo "\$1" >"\$BUILD/livepatch/\$1/$name.ko" && sleep 1
	END_OF_FILE
	mkdir "$T/dkms-98"
	(cd "$T/dkms-98" && sleep 0.5 && "$pkg/scripts/livepatch/dkms/make" 6.1.0-98-amd64) >"$T/other" 2>&1 3>&- &
	dkms_make
	wait
	[ ! -s "$T/other" ]
	[ "$(cat "$T/dkms/$name.ko" "$T/dkms-98/$name.ko" | xargs)" = "$kernel 6.1.0-98-amd64" ]
	[ -z "$(ls "$cache/livepatch")" ]
}

@test "dkms: apt downloads as its own user to a separate folder, and only verified files are accepted" {
	[ $EUID -eq 0 ] || skip "apt has another user when root runs it"
	packaged
	command_is apt-cache 'echo "linux-source-6.1 | 6.1.9-1 | x"'
	# shellcheck disable=SC2016
	command_is apt-get '[[ $* != *update* ]] || exit 1
echo "$(stat -c %U .) $*" >>"'"$T"'/asked"
eval "$FAKE_DEB"'
	export FAKE_DEB='echo deb >x.deb'
	run -0 "$pkg/scripts/fetch" --deb 6.1 6.1.9-1
	[ "$(cat "${lines[-1]}")" = deb ]
	[ "$(cat "$T/asked")" = "_apt -q download linux-source-6.1=6.1.9-1" ]
	[ -z "$(find "$BUILD" -user _apt)" ]
	# Files that the sandbox user left were not verified.
	for FAKE_DEB in 'echo deb >x.deb; chown _apt x.deb' 'ln -s /etc/passwd x.deb' 'mkdir x.deb' ':'; do
		rm -rf "$BUILD"
		run -1 "$pkg/scripts/fetch" --deb 6.1 6.1.9-1
		[[ ${lines[-1]} == "fetch: cannot download linux-source-6.1 6.1.9-1: E: "*" was not verified by apt; "* ]]
		[ -z "$(find "$BUILD" -name '*.deb')" ]
	done
	! grep -rn 'Sandbox' "$SCRIPTS" --include=* --exclude-dir=tests || false
}

@test "dkms: a key that cannot sign is reported with the reason" {
	program "$T/headers/scripts/sign-file" 'echo "At main.c:167: bad decrypt" >&2; exit 1'
	touch "$T/key" "$T/cert"
	KEY=$T/key CERT=$T/cert run "$SCRIPTS/livepatch/sign" "$T/headers" "$T/module.ko"
	one_line "sign: cannot sign with $T/key and $T/cert: At main.c:167: bad decrypt"
}

@test "dkms: the package is for amd64, and contains all that its scripts and units call" {
	git -C "$SCRIPTS/.." rev-parse -q --verify HEAD >/dev/null || skip "not a git tree"
	mkdir "$T/top"
	git init -q "$T/top"
	cp -r "$SCRIPTS" "$SCRIPTS"/../{patches,COPYING,CHANGES.md} "$T/top/"
	git -C "$T/top" -c user.name=t -c user.email=t@localhost commit -q --allow-empty -m t
	run -0 "$T/top/scripts/livepatch/deb"
	[[ $output == "$T/top/dist/perf-bpf-filter-livepatch_"*_amd64.deb ]]
	[ "$(dpkg-deb -f "$output" Architecture)" = amd64 ]
	dpkg-deb -R "$output" "$T/unpacked"
	grep -rhoE '/usr/src/perf-bpf-filter-livepatch-[^ ;"]+/scripts[^ ;"]*' "$T/unpacked/DEBIAN" "$T/unpacked/lib" >"$T/called"
	[ "$(wc -l <"$T/called")" -ge 4 ]
	while read -r file; do [ -x "$T/unpacked$file" ]; done <"$T/called"
	shellcheck -S warning "$T/unpacked/DEBIAN"/{postinst,prerm}
	[[ ", $(dpkg-deb -f "$output" Depends), " == *", python3, "* ]]
	# Run it with only the package's own files; Python must not write compiled files there.
	run "$T"/unpacked/usr/src/*/scripts/livepatch/build 5.10.0-30-amd64
	one_line "build: no live patch for Linux 5.10 (available: 6.1 6.12 7.3)"
	[ -z "$(find "$T/unpacked" -name '*.pyc')" ]
	grep -q '^flock\|flock -w' "$T/unpacked/DEBIAN/prerm"
}
