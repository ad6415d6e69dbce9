#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# package BASE VERSION: writes $T/the.deb, which contains Linux VERSION.
package() {
	local pkg=$T/pkg
	fake_tree "$T/linux-source-$1" "$2"
	mkdir -p "$pkg/DEBIAN" "$pkg/usr/src"
	tar -C "$T" -cJf "$pkg/usr/src/linux-source-$1.tar.xz" "linux-source-$1"
	printf 'Package: linux-source-%s\nVersion: 6.1.9-1\nArchitecture: all\nMaintainer: t <t@localhost>\nDescription: t\n' \
		"$1" >"$pkg/DEBIAN/control"
	dpkg-deb -b "$pkg" "$T/the.deb" >/dev/null
}

# An archive with two versions, newest first. The package contains Linux $1.
prepare() {
	package 6.1 "${1:-6.1.9}"
	command_is apt-cache 'printf "%s\n" "linux-source-6.1 | 6.1.9-1 | x" "linux-source-6.1 | 6.1.8-1 | x"'
	command_is apt-get '[[ $* == *"linux-source-6.1=6.1."[89]-1 ]] || { echo "E: Version not found"; exit 100; }
cp "'"$T"'/the.deb" "linux-source-6.1_${*##*=}_all.deb"; echo fetched >>"'"$T"'/fetched"'
}

@test "fetch: fetches the newest version, prints the tree, and does nothing the second time" {
	prepare
	run -0 "$SCRIPTS/fetch" 6.1
	[ "${lines[-1]}" = "$BUILD/linux-6.1.9-1/stock" ]
	[ -f "$BUILD/linux-6.1.9-1/stock/kernel/core.c" ]
	run "$SCRIPTS/fetch" 6.1
	[ "${#lines[@]}" -eq 1 ]
	[ "$(wc -l <"$T/fetched")" -eq 1 ]
}

@test "fetch: waits for the children of a killed run, and unpacks again" {
	prepare
	mkdir -p "$BUILD/cache" "$BUILD/linux-6.1.9-1/stock.part"
	echo half >"$BUILD/linux-6.1.9-1/stock.part/Makefile"
	hold_until "$BUILD/cache" waiting
	run -0 bash -c 'set -o pipefail; "$0" 6.1 |& tee "$1"' "$SCRIPTS/fetch" "$T/said"
	[[ $output == *"waiting for another fetch"* ]]
	grep -q VERSION "$BUILD/linux-6.1.9-1/stock/Makefile"
	[ ! -e "$BUILD/linux-6.1.9-1/stock.part" ]
}

@test "fetch: fetches a given version" {
	prepare 6.1.8
	run "$SCRIPTS/fetch" 6.1 6.1.8-1
	[ "${lines[-1]}" = "$BUILD/linux-6.1.8-1/stock" ]
}

@test "fetch: lists the versions" {
	prepare
	run "$SCRIPTS/fetch" --list 6.1
	[ "$output" = $'6.1.9-1\n6.1.8-1' ]
}

@test "fetch: an unknown base or version is refused" {
	# As a number, it would equal 6.1.
	run "$SCRIPTS/fetch" 6.10
	one_line "fetch: no such base: 6.10 (available: *6.1*)"
	prepare
	run "$SCRIPTS/fetch" 4.19
	one_line "fetch: no such base: 4.19 (available: *6.1*)"
	run "$SCRIPTS/fetch" --list 4.19
	one_line "fetch: no such base: 4.19 (available: *6.1*)"
	run -1 "$SCRIPTS/fetch" 6.1 6.1.7-1
	[[ ${lines[-1]} == "fetch: cannot download linux-source-6.1 6.1.7-1: E: Version not found; the versions there are: 6.1.9-1 6.1.8-1" ]]
	[ ! -e "$BUILD/linux-6.1.7-1/stock" ]
}

@test "fetch: package lists that are out of date are updated, once" {
	prepare
	command_is id 'echo 0'
	command_is apt-cache 'if [ -e "'"$T"'/updated" ]; then v=6.1.9-1; else v=6.1.5-1; fi; echo "linux-source-6.1 | $v | x"'
	cp "$T/bin/apt-get" "$T/bin/apt-get-download"
	command_is apt-get 'if [ "$1" = update ]; then echo >>"'"$T"'/updated"; else exec apt-get-download "$@"; fi'
	run -0 "$SCRIPTS/fetch" 6.1
	[ "${lines[-1]}" = "$BUILD/linux-6.1.9-1/stock" ]
	run -1 "$SCRIPTS/fetch" 6.1 6.1.7-1
	[ "$(wc -l <"$T/updated")" -eq 2 ]
}

@test "fetch: a damaged package leaves nothing, and the next run recovers" {
	prepare
	cp "$T/the.deb" "$T/good"
	head -c 700 "$T/good" >"$T/the.deb"
	run -1 "$SCRIPTS/fetch" 6.1
	[[ ${lines[-1]} == "fetch: cannot unpack "* ]]
	[ ! -e "$BUILD/linux-6.1.9-1/stock" ]
	[ ! -e "$BUILD/linux-6.1.9-1/stock.part" ]
	cp "$T/good" "$T/the.deb"
	"$SCRIPTS/fetch" 6.1
}

@test "fetch: a package that holds another version is refused" {
	prepare 6.12.3
	run -1 "$SCRIPTS/fetch" 6.1
	[[ ${lines[-1]} == "fetch: linux-source-6.1 6.1.9-1 contains Linux 6.12.3; "*" is removed" ]]
	[ ! -e "$BUILD/linux-6.1.9-1/stock" ]
}

@test "fetch: after a kill while unpacking, the next run recovers" {
	prepare
	# An xz that never ends; all processes of the run are killed.
	command_is xz 'touch "'"$T"'/unpacking"; sleep 60'
	setsid "$SCRIPTS/fetch" 6.1 >/dev/null 2>&1 3>&- &
	for _ in $(seq 100); do [ -e "$T/unpacking" ] && break; sleep 0.1; done
	kill -9 -- -$!
	wait $! || true
	rm "$T/bin/xz"
	[ ! -e "$BUILD/linux-6.1.9-1/stock" ]
	run -0 "$SCRIPTS/fetch" 6.1
	[ -f "$BUILD/linux-6.1.9-1/stock/kernel/core.c" ]
}

@test "fetch: a full disk is reported in one line, and nothing incomplete is left" {
	prepare
	head -c 200000 /dev/urandom >"$T/linux-source-6.1/big"
	tar -C "$T" -cJf "$T/pkg/usr/src/linux-source-6.1.tar.xz" linux-source-6.1
	dpkg-deb -b "$T/pkg" "$T/the.deb" >/dev/null
	mkdir "$BUILD"
	mount -t tmpfs -o size=300k tmpfs "$BUILD" 2>/dev/null || skip "cannot mount a small tmpfs"
	run "$SCRIPTS/fetch" 6.1
	ls "$BUILD"/linux-*/ >"$T/left"
	umount "$BUILD"
	[ "$status" -eq 1 ]
	[[ ${lines[-1]} == "fetch: cannot unpack "*"(disk full, "* ]]
	[ ! -s "$T/left" ]
}

@test "fetch: reports that the archive has no such source" {
	prepare
	command_is apt-cache ''
	command_is apt-get ''
	run "$SCRIPTS/fetch" 6.1
	one_line "fetch: apt knows no linux-source-6.1; *"
}

@test "fetch: --deb downloads once, unpacks nothing, and prints the package" {
	prepare
	run -0 "$SCRIPTS/fetch" --deb 6.1 6.1.8-1
	[ "${lines[-1]}" = "$BUILD/cache/linux-source-6.1_6.1.8-1_all.deb" ]
	cmp "$T/the.deb" "${lines[-1]}"
	[ ! -e "$BUILD/linux-6.1.8-1" ]
	run "$SCRIPTS/fetch" --deb 6.1 6.1.8-1
	[ "${#lines[@]}" -eq 1 ]
	[ "$(wc -l <"$T/fetched")" -eq 1 ]
	run -1 "$SCRIPTS/fetch" --deb 6.1 6.1.7-1
	[[ ${lines[-1]} == "fetch: cannot download linux-source-6.1 6.1.7-1: "* ]]
	[ -z "$(find "$BUILD" -name '*.part')" ]
	run "$SCRIPTS/fetch" --deb 6.1
	one_line "usage: *"
}

# A machine with the archives $@, each as "LABEL|URL", and without private package lists. $T/sources gets the
# lines of sources.list that apt reads; $T/archive has the versions that it serves.
machine_with() {
	printf 'Debian|%s\n' "$@" >"$T/targets"
	printf '%s\n' 5.10.9-1+b1 5.10.8-1~deb11u1 >"$T/archive"
	package 5.10 5.10.9
	command_is apt-cache '[ "$1" = -c ] && [ -e "${2%/*}/lists/read" ] || exit 0
awk "{ print \"linux-source-5.10 | \" \$0 \" | x\" }" <"'"$T"'/archive"'
	command_is apt-get 'case $1 in
indextargets) cat "'"$T"'/targets" ;;
update)
	[ "$2" = -c ] || { echo >>"'"$T"'/updated"; exit; }
	cat "${3%/*}/sources.list" >>"'"$T"'/sources"
	touch "${3%/*}/lists/read"
	;;
-q)
	last=${!#}
	[ "$2" = -c ] && grep -qx "${last##*=}" "'"$T"'/archive" || { echo "E: Version not found"; exit 100; }
	cp "'"$T"'/the.deb" "linux-source-5.10_${last##*=}_all.deb"
	;;
esac'
}

@test "fetch: a release that is not configured comes from the configured archive" {
	machine_with "Debian|http://mirror/debian/" "Debian-Security|http://mirror/security/"
	run "$SCRIPTS/fetch" --list 5.10
	[ "$output" = $'5.10.9-1+b1\n5.10.8-1~deb11u1' ]
	[[ $(cat "$T/sources") == "deb [signed-by="*"] http://mirror/security/ bullseye-security main" ]]
	run -0 "$SCRIPTS/fetch" 5.10
	[ "${lines[-1]}" = "$BUILD/linux-5.10.9-1+b1/stock" ]
	[ -f "$BUILD/linux-5.10.9-1+b1/stock/kernel/core.c" ]
	[ ! -e "$T/updated" ]
}

@test "fetch: a release other than a security release comes from the main archive" {
	machine_with "Debian-Security|http://mirror/security/" "Debian|http://mirror/debian/"
	run "$SCRIPTS/fetch" --list 7.3
	[[ $(cat "$T/sources") == "deb [signed-by="*"] http://mirror/debian/ trixie-backports main" ]]
	# The series for 7.3 is also for 7.2.
	run "$SCRIPTS/fetch" --list 7.2
	[[ $(tail -n 1 "$T/sources") == "deb [signed-by="*"] http://mirror/debian/ testing main" ]]
}

@test "fetch: apt's configuration for a separate release writes only to the build folder" {
	machine_with "Debian-Security|http://mirror/security/"
	"$SCRIPTS/fetch" --list 5.10
	for place in Etc::sourcelist State::Lists Cache; do
		grep -q "^Dir::$place \"$BUILD/apt/bullseye-security/" "$BUILD/apt/bullseye-security/apt.conf"
	done
	grep -q '^#clear APT::Update;' "$BUILD/apt/bullseye-security/apt.conf"
}

@test "fetch: private package lists that are out of date are updated, without root" {
	machine_with "Debian-Security|http://mirror/security/"
	command_is id 'echo 1000'
	"$SCRIPTS/fetch" --list 5.10
	printf '%s\n' 5.10.9-1 >"$T/archive"
	run -1 "$SCRIPTS/fetch" 5.10 5.10.8-1~deb11u1
	[[ ${lines[-1]} == "fetch: cannot download "*"; the versions there are: 5.10.9-1" ]]
	[ "$(wc -l <"$T/sources")" -eq 2 ]
	[ ! -e "$T/updated" ]
}

@test "fetch: a missing security archive is reported in one line; root updates the lists first" {
	machine_with "Debian|http://mirror/debian/"
	command_is id 'echo 1000'
	run "$SCRIPTS/fetch" 5.10
	one_line "fetch: linux-source-5.10 comes from bullseye-security, but apt has no Debian-Security archive configured; *"
	command_is id 'echo 0'
	run "$SCRIPTS/fetch" 5.10
	one_line "fetch: linux-source-5.10 comes from bullseye-security, *"
	[ -e "$T/updated" ]
	[ ! -e "$T/sources" ]
}

@test "fetch: a package with another point release is refused and removed" {
	prepare 6.1.7
	run -1 "$SCRIPTS/fetch" 6.1 6.1.8-1
	[[ ${lines[-1]} == "fetch: linux-source-6.1 6.1.8-1 contains Linux 6.1.7; $BUILD/cache/linux-source-6.1_6.1.8-1_all.deb is removed" ]]
	[ ! -e "$BUILD/linux-6.1.8-1/stock" ]
	[ -z "$(ls "$BUILD/cache")" ]
	# 6.1.80 does not count as 6.1.8.
	package 6.1 6.1.80
	run -1 "$SCRIPTS/fetch" 6.1 6.1.8-1
	[[ ${lines[-1]} == *" contains Linux 6.1.80; "* ]]
}

@test "fetch: a truncated or changed package in the cache is removed, and the next run recovers" {
	prepare
	"$SCRIPTS/fetch" 6.1
	cp -r "$BUILD/linux-6.1.9-1/stock" "$T/right"
	size=$(stat -c %s "$T/the.deb")
	for at in 0 60 $((size / 4)) $((size / 2)) $((size * 3 / 4)) $((size - 40)); do
		for damage in cut changed; do
			rm -rf "$BUILD/linux-6.1.9-1"
			cp "$T/the.deb" "$BUILD/cache/linux-source-6.1_6.1.9-1_all.deb"
			if [ $damage = cut ]; then
				truncate -s "$at" "$BUILD"/cache/*.deb
			else
				printf 'rubbish' | dd of="$(echo "$BUILD"/cache/*.deb)" bs=1 seek="$at" conv=notrunc status=none
			fi
			run "$SCRIPTS/fetch" 6.1
			# In some places the damage has no effect.
			[ "$status" -eq 0 ] || { [ ! -e "$BUILD/linux-6.1.9-1/stock" ] && [ -z "$(ls "$BUILD/cache")" ]; }
			[ "$status" -eq 0 ] || [[ ${lines[-1]} == "fetch: cannot unpack "* ]]
			run -0 "$SCRIPTS/fetch" 6.1
			diff -r "$T/right" "$BUILD/linux-6.1.9-1/stock"
		done
	done
}

@test "fetch: passes on apt's message about a wrong checksum, and leaves nothing" {
	prepare
	cp "$T/bin/apt-get" "$T/bin/apt-get-good"
	command_is apt-get '[ "$1" != update ] || exit 0; cp "'"$T"'/the.deb" partial
echo "E: Failed to fetch http://mirror/linux-source.deb  Hash Sum mismatch"; exit 100'
	run -1 "$SCRIPTS/fetch" 6.1
	[[ ${lines[-1]} == "fetch: cannot download "*"Hash Sum mismatch; "* ]]
	[ -z "$(find "$BUILD" -type f)" ]
	mv "$T/bin/apt-get-good" "$T/bin/apt-get"
	"$SCRIPTS/fetch" 6.1
}

@test "fetch: a read-only build folder is reported in one line" {
	prepare
	mkdir "$BUILD"
	mount -t tmpfs -o ro tmpfs "$BUILD" 2>/dev/null || skip "cannot mount a tmpfs"
	run "$SCRIPTS/fetch" 6.1
	umount "$BUILD"
	one_line "fetch: cannot write to $BUILD"
}

# Creates a mirror of kernel.org in the folder $mirror, with Linux 6.6.2 and 6.6.10, and with similar file
# names that are no releases of 6.6. KERNEL_MIRROR is its file URL; serve starts an HTTP server for it.
mirror_of_kernel_org() {
	local version
	mirror=$T/mirror
	mkdir -p "$mirror/v6.x"
	for version in 6.6.2 6.6.10; do
		fake_tree "$T/linux-$version" $version
		tar -C "$T" -cJf "$mirror/v6.x/linux-$version.tar.xz" linux-$version
	done
	touch "$mirror/v6.x/"{linux-6.60.1.tar.xz,linux-6.6.99.tar.gz,linux-6.6.98.tar.sign,patch-6.6.97.xz}
	(cd "$mirror/v6.x" && sha256sum linux-*.tar.xz) >"$T/sums"
	{ echo "-----BEGIN PGP SIGNED MESSAGE-----"; cat "$T/sums"; echo "-----BEGIN PGP SIGNATURE-----"; } \
		>"$mirror/v6.x/sha256sums.asc"
	export KERNEL_MIRROR=file://$mirror
}

# serve [PROGRAM]: serves $mirror on a free port; PROGRAM is Python code that may change the handler.
serve() {
	python3 -u -c 'import http.server, os, sys
os.chdir(sys.argv[1])
Handler = http.server.SimpleHTTPRequestHandler
exec(sys.argv[2])
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port)
server.serve_forever()' "$mirror" "${1:-}" >"$T/port" 2>"$T/served" 3>&- &
	server=$!
	for _ in $(seq 100); do [ -s "$T/port" ] && break; sleep 0.1; done
	KERNEL_MIRROR=http://127.0.0.1:$(cat "$T/port")/
	export KERNEL_MIRROR
}

@test "fetch: kernel.org: fetches the newest version of a line, by number, once" {
	mirror_of_kernel_org
	serve
	run -0 "$SCRIPTS/fetch" 6.6
	[ "${lines[-1]}" = "$BUILD/linux-6.6.10/stock" ]
	[ -f "$BUILD/linux-6.6.10/stock/kernel/core.c" ]
	run "$SCRIPTS/fetch" 6.6 6.6.2
	[ "${lines[-1]}" = "$BUILD/linux-6.6.2/stock" ]
	run "$SCRIPTS/fetch" --list 6.6
	[ "$output" = 6.6.10 ]
	kill $server
	# A tree that exists needs no mirror: it works with one that is down, and without one.
	run "$SCRIPTS/fetch" 6.6 6.6.10
	[ "$output" = "$BUILD/linux-6.6.10/stock" ]
	unset KERNEL_MIRROR
	run "$SCRIPTS/fetch" 6.6
	[ "$output" = "$BUILD/linux-6.6.10/stock" ]
	[ "$(grep -c "GET /v6.x/linux-" "$T/served")" -eq 2 ]
}

@test "fetch: kernel.org: fetches from a folder, and --deb only downloads" {
	mirror_of_kernel_org
	run -0 "$SCRIPTS/fetch" --deb 6.6 6.6.2
	[ "${lines[-1]}" = "$BUILD/cache/linux-6.6.2.tar.xz" ]
	cmp "$mirror/v6.x/linux-6.6.2.tar.xz" "${lines[-1]}"
	[ ! -e "$BUILD/linux-6.6.2" ]
	run "$SCRIPTS/fetch" 6.6
	[ "${lines[-1]}" = "$BUILD/linux-6.6.10/stock" ]
}

@test "fetch: kernel.org: reports a missing mirror, one that is down, and a missing line or version" {
	unset KERNEL_MIRROR
	run "$SCRIPTS/fetch" 6.6
	one_line "fetch: set KERNEL_MIRROR=https://*, to fetch Linux 6.6; or bring a tree with KSRC="
	run "$SCRIPTS/fetch" 6.6 6.6.2
	one_line "fetch: set KERNEL_MIRROR=https://*"
	mirror_of_kernel_org
	serve
	run -1 "$SCRIPTS/fetch" 6.6 6.6.3
	[ "${lines[-1]}" = "fetch: no linux-6.6.3.tar.xz in ${KERNEL_MIRROR}v6.x; the newest is 6.6.10" ]
	run "$SCRIPTS/fetch" 6.18
	one_line "fetch: set KERNEL_MIRROR=*, to fetch Linux 6.18; *"
	run "$SCRIPTS/fetch" 5.15
	one_line "fetch: cannot read ${KERNEL_MIRROR}v5.x: *404"
	kill $server
	run "$SCRIPTS/fetch" 6.6
	one_line "fetch: cannot read ${KERNEL_MIRROR}v6.x: *"
	run -1 "$SCRIPTS/fetch" 6.6 6.6.2
	[[ ${lines[-1]} == "fetch: cannot read ${KERNEL_MIRROR}v6.x/sha256sums.asc: "* ]]
	export KERNEL_MIRROR=file://$T/nothing
	run "$SCRIPTS/fetch" 6.6
	one_line "fetch: cannot read file://$T/nothing/v6.x: *"
	KERNEL_MIRROR=$T/nothing run -1 "$SCRIPTS/fetch" 6.6
	one_line "fetch: KERNEL_MIRROR=$T/nothing: not an http, https or file URL"
	[ -z "$(find "$BUILD" -type f)" ]
}

@test "fetch: kernel.org: a file with a wrong checksum is refused and removed" {
	mirror_of_kernel_org
	cp "$mirror/v6.x/linux-6.6.2.tar.xz" "$mirror/v6.x/linux-6.6.10.tar.xz"
	for server in file http; do
		[ $server = file ] || serve
		run -1 "$SCRIPTS/fetch" 6.6
		[ "${lines[-1]}" = "fetch: ${KERNEL_MIRROR%/}/v6.x/linux-6.6.10.tar.xz does not match its sha256sums.asc" ]
		[ -z "$(find "$BUILD" -type f)" ]
		[ ! -e "$BUILD/linux-6.6.10/stock" ]
	done
	kill "$server"
}

@test "fetch: kernel.org: an incomplete download leaves nothing, and the next run recovers" {
	mirror_of_kernel_org
	serve '
def cut(self, source, output):
    output.write(source.read(300)) if self.path.endswith(".xz") else output.write(source.read())
Handler.copyfile = cut'
	run -1 "$SCRIPTS/fetch" 6.6
	[[ ${lines[-1]} == "fetch: cannot download ${KERNEL_MIRROR}v6.x/linux-6.6.10.tar.xz: curl: (18) "* ]]
	[ -z "$(find "$BUILD" -type f)" ]
	[ ! -e "$BUILD/linux-6.6.10/stock" ]
	kill $server
	serve
	run -0 "$SCRIPTS/fetch" 6.6
	[ -f "$BUILD/linux-6.6.10/stock/kernel/core.c" ]
	kill $server
}
