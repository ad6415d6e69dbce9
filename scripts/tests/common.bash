# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Shared by the tests of the scripts: a kernel tree of four files, and fake commands.
# bats sets status, output and lines, and the tests use SCRIPTS.
# shellcheck disable=SC2034,SC2154

# run -N: the command must exit with N. If a test fails, bats prints the output of the last command.
bats_require_minimum_version 1.5.0
BATS_PRINT_OUTPUT_ON_FAILURE=1

# A file with more to prepare has its own setup(), which calls this.
setup() { set_up; }

set_up() {
	SCRIPTS=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
	T=$(mktemp -d)
	export BUILD=$T/build
	unset ARCH KSRC VERSION ACCEL FRAGMENT OBJ PART
	mkdir "$T/bin"
	PATH=$T/bin:$PATH
}

# A fake command that is slow may still be writing there.
teardown() {
	rm -rf "$T" || { sleep 2 && rm -rf "$T"; }
}

# program PATH TEXT: creates a program.
program() {
	mkdir -p "${1%/*}"
	printf '#!/bin/bash\n%s\n' "$2" >"$1"
	chmod +x "$1"
}

# command_is NAME TEXT: creates a command NAME that precedes the real one in PATH.
command_is() {
	program "$T/bin/$1" "$2"
}

# fake_suite PATH [NAME=RULE...]: creates a suite that lists these tests
fake_suite() {
	local rules tests
	rules=$(printf '%s\n' "${@:2}" | sed -n 's/.*=\(.*\)/{"id": "\1", "what": "what"}/p' | sort -u | paste -sd ,)
	tests=$(printf '%s\n' "${@:2}" | sed -n 's/\(.*\)=\(.*\)/{"name": "\1", "rule": "\2", "says": "", "file": ""}/p' | paste -sd ,)
	program "$1" "[ \"\$1\" != --rules ] || echo '{\"rules\": [$rules], \"tests\": [$tests]}'"
}

# fake_top [SCRIPT...]: creates a repository in $T/top, in which these scripts do nothing
fake_top() {
	local name
	mkdir -p "$T/top/selftests"
	cp -r "$SCRIPTS" "$SCRIPTS/../Kconfig.fragment" "$T/top"
	cp -r "$SCRIPTS/../selftests/module" "$T/top/selftests"
	for name; do program "$T/top/scripts/$name" ''; done
}

# fake_builds: a tree without patches, from which the scripts build kernels that boot in fake_qemu
fake_builds() {
	export ACCEL=tcg VERSION=6.1.9-1
	fake_qemu
	command_is dpkg-query 'echo installed'
	command_is make '[[ $* == *selftests* ]] || exec /usr/bin/make "$@"'
	fake_tree "$BUILD/linux-6.1.9-1/stock"
}

# applied TREE: writes the record that apply leaves in a tree with the series for 6.1.
applied() {
	(cd "${TOP:-$SCRIPTS/..}/scripts" && python3 -B -c 'from lab import base; print(base.find("6.1").digest())') >"$1/.series-applied"
}

# The kernels that make verify leaves, an archive with only that version, and a make that does nothing.
verified_kernels() {
	local kernel
	for kernel in stock patched; do
		mkdir -p "$BUILD/linux-6.1.9-1/$kernel/obj/arch/x86/boot"
		echo "$kernel" >"$BUILD/linux-6.1.9-1/$kernel/obj/arch/x86/boot/bzImage"
	done
	applied "$BUILD/linux-6.1.9-1/patched"
	command_is apt-cache 'echo "linux-source-6.1 | 6.1.9-1 | archive"'
	command_is make 'exit 0'
	fake_qemu
}

# A tree with a version, two sources, and a Makefile that "configures" and "builds".
fake_tree() {
	local tree=$1 version=${2:-6.1.9}
	mkdir -p "$tree/kernel" "$tree/include"
	IFS=. read -r major minor sub <<<"$version"
	cat >"$tree/Makefile" <<-END
	VERSION = $major
	PATCHLEVEL = $minor
	SUBLEVEL = $sub
	.RECIPEPREFIX = >
	allnoconfig:
	> grep -v "\$\${FAKE_LOST:-nothing}" \$(KCONFIG_ALLCONFIG) | sed '/=n\$\$/d' >\$(O)/.config
	bzImage:
	> @echo "  CC      kernel/core.o"
	> @if [ -n "\$\$FAKE_ERROR" ]; then echo "core.c:1: error: \$\$FAKE_ERROR"; exit 1; fi
	> mkdir -p \$(O)/arch/x86/boot && cp kernel/core.c \$(O)/arch/x86/boot/bzImage
	modules:
	> @if [ -n "\$(M)" ]; then touch \$(M)/perf_bpf_pmu.ko; fi
	END
	seq 1 40 | sed 's/^/int line/; s/$/;/' >"$tree/kernel/core.c"
	seq 1 40 | sed 's/^/int head/; s/$/;/' >"$tree/include/core.h"
}

# A series of two patches for fake_tree: the first to core.c, the second to both files. Half of the tests use
# it, so it is not made with quilt, which takes seconds.
fake_series() {
	local series=$1 a=$T/series-tree/a b=$T/series-tree/b
	rm -rf "$T/series-tree"
	mkdir -p "$series" "$T/series-tree"
	fake_tree "$a"
	cp -r "$a" "$b"
	sed -i 's/line10;/line10_one;/' "$b/kernel/core.c"
	differences >"$series/0001-one.patch"
	cp "$b/kernel/core.c" "$a/kernel/core.c"
	sed -i 's/line30;/line30_two;/' "$b/kernel/core.c"
	sed -i 's/head20;/head20_two;/' "$b/include/core.h"
	differences >"$series/0002-two.patch"
	printf '%s\n' "# BASE linux-6.1 6.1.9-1" 0001-one.patch 0002-two.patch >"$series/series"
}

# The diff between the trees a and b, in the format of "quilt refresh -p ab --no-timestamps --no-index".
differences() {
	(cd "$T/series-tree" && diff -ru a b) | sed -E 's/^((---|\+\+\+) [^\t]*)\t.*/\1/; /^diff /d'
}

# hold_until PATH TEXT: holds a lock on PATH until $T/said has TEXT.
hold_until() {
	(
		flock 8
		touch "$T/held"
		for _ in $(seq 600); do grep -qs "$2" "$T/said" && break || sleep 0.1; done
	) 8<"$1" 3>&- &
	until [ -e "$T/held" ]; do sleep 0.1; done
}

# mutant FILE FIELDS: writes a mutant of the series of fake_series
mutant() {
	mkdir -p "${1%/*}"
	printf 'C1: broken.\n\n%s\n\n--- a/kernel/core.c\n+++ b/kernel/core.c\n@@ -39 +39 @@\n-int line39;\n+int line39_broken;\n' "$2" >"$1"
}

# A fake QEMU that runs $FAKE_GUEST, with the files on its command line in variables.
fake_qemu() {
	command_is qemu-system-x86_64 '
for arg; do
	case $arg in
	file:*) console=${arg#file:} ;;
	file,id=output,path=*) output=${arg##*path=} ;;
	file,id=verdict,path=*) verdict=${arg##*path=} ;;
	socket,id=monitor,fd=*) monitor=${arg##*fd=} ;;
	esac
done
# The monitor of a CPU that takes so many int3s at ADDRESS whenever somebody looks, and has BYTE there in its memory.
int3s() {
	local address=$1 byte=$2 times=$3 line log answer
	while read -r line; do
		answer=
		case $line in
		*logfile*) log=${line##*logfile } log=${log%%\"*} ;;
		*"x /1xb"*) answer="$address: 0x$byte\r\n" ;;
		*"log int"*)
			for ((i = 0; i < times; i++)); do
				printf "%6d: v=03 e=0000 i=1 cpl=0 IP=0010:%s pc=%s\nRAX=0\n" $i "$address" "$address" >"$log"
			done ;;
		esac
		printf "{\"return\": \"%s\"}\r\n" "$answer" >&"$monitor"
	done <&"$monitor"
}
[[ $FAKE_GUEST == *int3s* ]] || exec {monitor}>&-
say() { printf "%s\r\n" "$*" >>"$console"; }
up() { say "Linux version 6.1.9 (gcc)"; echo "guest-init: up" >>"$output"; }
eval "$FAKE_GUEST"'
}

# guest_ran DIR OUTCOME KTAP: writes the files of a run that printed KTAP, as scripts/boot does. The probe
# reports a kernel without bugs; see probe_says.
guest_ran() {
	local exit=null

	mkdir -p "$T/$1"
	case $2 in passed) exit=0 ;; failed) exit=1 ;; esac
	echo "{\"outcome\": \"$2\", \"exit\": ${EXIT:-$exit}, \"accel\": \"tcg\", \"seconds\": 4.2, \"kernel\": \"6.1.9\", \"splats\": ${SPLATS:-[]}}" \
		>"$T/$1/boot.json"
	{
		echo "guest-init: up"
		probe_of sample=suppressed wakeup=suppressed sigio=suppressed setsig=suppressed sigtrap=suppressed limit=untouched \
			hup=suppressed / continue=works step=works handler=works
		printf '%b' "$3"
		# The suite's last line, unless the test provides its own.
		[[ $3 == *"# Totals"* ]] || printf '# Totals: pass:%d fail:%d xfail:0 xpass:0 skip:%d error:0\n' \
			"$(printf '%b' "$3" | grep -aE '^ok ' | grep -acv '# SKIP')" \
			"$(printf '%b' "$3" | grep -acE '^not ok ')" "$(printf '%b' "$3" | grep -ac '# SKIP')"
	} >"$T/$1/output.log"
}

# probe_of EFFECT=RESULT... / STOP=RESULT...: the output of perf_bpf_probe --json
probe_of() {
	local row rows=
	for row; do
		case $row in
		/) rows+='], "stops": [' ;;
		*) rows+="{\"id\": \"${row%%=*}\", \"title\": \"the ${row%%=*}\", \"result\": \"${row#*=}\"}, " ;;
		esac
	done
	echo "{\"effects\": [$rows]}" | sed 's/, ]/]/g'
}

# probe_says DIR ROW [WORD]: changes a row of the probe in the log of guest_ran to WORD, or removes it without
# WORD
probe_says() {
	sed -i -E "s/(\"id\": \"$2\", [^}]*\"result\": \")[^\"]*/\1${3-}/; s/(, )?\{\"id\": \"$2\",[^}]*\"result\": \"\"\}//; s/\[, /[/" "$T/$1/output.log"
}

# one_line PATTERN: the command failed, and printed exactly one line, which matches.
one_line() {
	# shellcheck disable=SC2053
	[ "$status" -ne 0 ] && [ "${#lines[@]}" -eq 1 ] && [[ ${lines[0]} == $1 ]]
}
