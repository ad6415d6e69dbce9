#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# An archive with only the release bookworm, whose packages are $1, each as PACKAGE VERSION SIZE.
archive() {
	command_is apt-get '
case $* in
*indextargets*) printf "Debian|%s|http://localhost/\n" Debian Debian-Security ;;
*update*) [[ $* == */bookworm/* ]] ;;
*) echo "E: Unable to locate package ${*: -1}" >&2; exit 100 ;;
esac'
	command_is apt-cache "[[ \$* != *dumpavail ]] || printf 'Package: %s\nVersion: %s\nSize: %s\n\n' $(xargs <<<"$1")"
}

@test "image: --list prints the newest kernel of each line with modules, no other flavour, no metapackage" {
	archive 'linux-image-6.1.0-9-amd64 6.1.99-1 200000 linux-image-6.1.0-10-amd64 6.1.100-1 200000
	linux-image-6.1.0-10-amd64-dbg 6.1.100-1 200000 linux-image-6.1.0-10-rt-amd64 6.1.100-1 200000
	linux-image-6.1-amd64 6.1.101-1 200000 linux-image-5.10.0-1-amd64 5.10.2-1 200000
	linux-image-7.0.12-amd64 7.0.12-1 1900 linux-image-7.1.13-amd64 7.1.13-1 1900 linux-modules-7.1.13-amd64 7.1.13-1 200000'
	run "$SCRIPTS/image" --list
	[ "$status" -eq 0 ]
	[ "$(grep -v ^image: <<<"$output")" = $'5.10.0-1-amd64 5.10.2-1 bookworm\n6.1.0-10-amd64 6.1.100-1 bookworm\n7.1.13-amd64 7.1.13-1 bookworm' ]
	[[ $output == *"image: no sid in the archive"* ]]
}

@test "image: an unknown kernel is an error, and nothing is left" {
	archive ''
	run "$SCRIPTS/image" 6.1.0-1-amd64
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = "image: no linux-image-6.1.0-1-amd64 in the archive: E: Unable to locate package linux-image-6.1.0-1-amd64" ]
	[ ! -e "$BUILD/images/6.1.0-1-amd64" ]
}

@test "stock --check: a row that was measured with other tests must be marked" {
	command_is perf_bpf_filter 'echo "{\"rules\": [], \"tests\": []}"'
	cp -r "$SCRIPTS" "$T/scripts"
	mkdir "$T/patches"
	cp -r "$SCRIPTS"/../patches/{linux-*,livepatch,KERNELS.md} "$T/patches"
	run "$T/scripts/prove/stock" --write "$T/bin/perf_bpf_filter"
	[ "$status" -eq 0 ]
	[ "$(grep -c ', older suite ' "$T/patches/KERNELS.md")" -eq "$(grep -c '^<!-- .*: tests ' "$T/patches/KERNELS.md")" ]
	run "$T/scripts/prove/stock" --check "$T/bin/perf_bpf_filter"
	[ "$status" -eq 0 ]
	sed -i 's/, older suite//' "$T/patches/KERNELS.md"
	run "$T/scripts/prove/stock" --check "$T/bin/perf_bpf_filter"
	one_line "stock: patches/KERNELS.md is out of date; run make results"
}
