#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# An archive with only the release bookworm, whose packages are $1, each as PACKAGE VERSION SIZE.
archive() {
	command_is apt-get '
case $* in
*indextargets*) printf "Debian|%s|http://localhost/\n" Debian Debian-Security ;;
*update*) [[ $* == */bookworm/* ]] || { echo "E: ${no_release:-The repository does not have a Release file.}" && exit 100; } ;;
*) echo "E: Unable to locate package ${*: -1}" >&2; exit 100 ;;
esac'
	command_is apt-cache "[[ \$* != *dumpavail ]] || printf 'Package: %s\nVersion: %s\nSize: %s\n\n' $(xargs <<<"$1")"
}

@test "image: --list prints the newest kernel of each line with modules, no other flavour, no metapackage" {
	archive 'linux-image-6.1.0-9-amd64 6.1.99-1 200000 linux-image-6.1.0-10-amd64 6.1.100-1 200000
	linux-image-6.1.0-10-amd64-dbg 6.1.100-1 200000 linux-image-6.1.0-10-rt-amd64 6.1.100-1 200000
	linux-image-6.1-amd64 6.1.101-1 200000 linux-image-5.10.0-1-amd64 5.10.2-1 200000
	linux-image-7.0.12-amd64 7.0.12-1 1900 linux-image-7.1.13-amd64 7.1.13-1 1900 linux-modules-7.1.13-amd64 7.1.13-1 200000
	linux-image-7.2.4-amd64 7.2.4-1 200000'
	run -0 "$SCRIPTS/image" --list
	[ "$(grep -v ^image: <<<"$output")" = $'5.10.0-1-amd64 5.10.2-1 bookworm\n6.1.0-10-amd64 6.1.100-1 bookworm\n7.1.13-amd64 7.1.13-1 bookworm\n7.2.4-amd64 7.2.4-1 bookworm' ]
	[[ $output == *"image: no sid in the archive"* ]]
}

@test "image: --list fails if the archive cannot be reached" {
	archive 'linux-image-6.1.0-9-amd64 6.1.99-1 200000'
	no_release="Temporary failure resolving 'mirror'" run -1 "$SCRIPTS/image" --list
	one_line "image: bullseye-security: E: Temporary failure resolving 'mirror'; see */update.log"
}

@test "image: an unknown kernel is an error, and nothing is left" {
	archive ''
	run -1 "$SCRIPTS/image" 6.1.0-1-amd64
	[ "${lines[-1]}" = "image: no linux-image-6.1.0-1-amd64 in the archive: E: Unable to locate package linux-image-6.1.0-1-amd64" ]
	[ ! -e "$BUILD/images/6.1.0-1-amd64" ]
}

@test "stock: a kernel whose guest ran half of the suite, or whose probe contradicts it, gets no row" {
	local name guest=$BUILD/images/6.12.9-amd64-boot
	fake_top deps
	mkdir "$T/top/patches"
	cp -r "$SCRIPTS"/../patches/{linux-*,livepatch} "$T/top/patches"
	# The programs that stock calls; the guest's results are in $T/guest.
	program "$T/top/scripts/fetch" "echo '$T/tree'"
	program "$T/top/scripts/image" '[ "$1" != --list ] || echo "6.12.9-amd64 $VERSION_OF bookworm"'
	program "$T/top/scripts/boot-image" "cp -r '$T/guest' \"\$2\""
	fake_suite "$BUILD/images/selftests/perf_bpf_filter" a=C1 b=C1 oops.c=C1
	command_is make 'exit 0'
	export VERSION_OF=6.12.9-1
	for name in "" half probe since; do
		rm -rf "$T/guest" "$guest"
		guest_ran guest failed 'TAP version 13\n1..2\nok 1 a\nnot ok 2 b\n'
		: >"$T/guest/console.log"
		case $name in
		half) guest_ran guest failed 'TAP version 13\n1..1\nnot ok 1 b\n' ;;
		probe) probe_says guest hup delivered ;;
		since) VERSION_OF=6.12.999-1 ;;
		esac
		run "$T/top/scripts/prove/stock"
		case $name in
		half) [[ $status -eq 1 && $output == *"stock: 6.12.9-amd64: did not run 1 of the suite's 2 tests: a"* ]] ;;
		probe) [[ $status -eq 1 && $output == *"stock: 6.12.9-amd64: the probe reports delivered for hup, expected suppressed"* ]] ;;
		since) [[ $status -eq 0 && $(cat "$T/top/patches/KERNELS.md") == *"| 1 of 2 | -          | C1           | series 6.12"* ]] ;;
		*) [[ $status -eq 0 && $(cat "$T/top/patches/KERNELS.md") == *"| 7 of 7     | fixed      | 1 of 2 | -          | C1           | no series |"* ]] ;;
		esac || { echo "$name: $status, $output"; cat "$T/top/patches/KERNELS.md"; false; }
	done
}

@test "stock --check: a row that was measured with other tests must be marked" {
	fake_suite "$T/bin/perf_bpf_filter"
	fake_top
	mkdir "$T/top/patches"
	cp -r "$SCRIPTS"/../patches/{linux-*,livepatch,KERNELS.md} "$T/top/patches"
	run -0 "$T/top/scripts/prove/stock" --write "$T/bin/perf_bpf_filter"
	[ "$(grep -c ', older suite ' "$T/top/patches/KERNELS.md")" -eq "$(grep -c '^<!-- .*: tests ' "$T/top/patches/KERNELS.md")" ]
	run -0 "$T/top/scripts/prove/stock" --check "$T/bin/perf_bpf_filter"
	sed -i 's/, older suite//' "$T/top/patches/KERNELS.md"
	run "$T/top/scripts/prove/stock" --check "$T/bin/perf_bpf_filter"
	one_line "stock: patches/KERNELS.md is out of date; run make results"
}
