#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

# symtypes NAME MEMBERS: writes genksyms' types of the first symbol; the struct has these members
symtypes() {
	mkdir -p "$T/$1/kernel/events"
	cat >"$T/$1/kernel/events/hw_breakpoint.symtypes" <<-END
	s#pmu struct pmu { int type ; }
	s#perf_event struct perf_event { $2 s#pmu * pmu ; }
	register_user_hw_breakpoint s#perf_event * register_user_hw_breakpoint ( void )
	END
}

# kernel NAME CRC: a kernel with two symbols, one of them with that CRC, and three structs, two of which the
# symbols refer to
kernel() {
	symtypes "$1" 'u16 read_size ; t#handler orig ;'
	{
		printf '0x%s\tregister_user_hw_breakpoint\tvmlinux\tEXPORT_SYMBOL_GPL\t\n' "$2"
		printf '0x11111111\tkvm_read_guest\tarch/x86/kvm/kvm\tEXPORT_SYMBOL_GPL\tKVM\n'
	} >"$T/$1/Module.symvers"
	cat >"$T/$1/layouts" <<'END'
struct perf_event {
	struct list_head           event_entry;          /*     0    16 */
	u16                        read_size;            /*    16     2 */

	/* XXX 6 bytes hole, try to pack */

	union {
		u64                count;                /*    24     8 */
		u32                low:1;                /*    24: 0  4 */
	};                                               /*    24     8 */
	struct bpf_prog *          prog;                 /*    32     8 */

	/* size: 40, cachelines: 1, members: 4 */
	/* last cacheline: 40 bytes */
};
struct pmu {
	int                        type;                 /*     0     4 */

	/* size: 4, cachelines: 1, members: 1 */
};
struct bpf_perf_event_data_kern {
	struct perf_event *        event;                /*     0     8 */

	/* size: 8, cachelines: 1, members: 1 */
};
END
}

setup() {
	set_up
	kernel stock aaaaaaaa
	kernel patched aaaaaaaa
}

# compare -STATUS
compare() {
	run "$1" env -C "$SCRIPTS" python3 -B -c 'import pathlib, sys; from lab import kabi
sys.argv[0] = "kabi"
sys.exit(not kabi.report("6.1", *map(pathlib.Path, sys.argv[1:])))' "$T/stock" "$T/patched"
}

@test "kabi: a base that is not measured is skipped" {
	run -0 "$SCRIPTS/prove/kabi" 7.3
	[ "$output" = "kabi: skipped: only 5.10, 6.1, 6.12 keep the module ABI, not 7.3" ]
	[ ! -e "$BUILD" ]
}

@test "kabi: identical kernels pass" {
	compare -0
	[ "$output" = "kabi: 6.1: 0 of 2 symbols differ, 0 of 2 structs have another layout" ]
}

@test "kabi: an added symbol, and an added member in a hole, are no differences" {
	printf '0x22222222\tnew\tvmlinux\tEXPORT_SYMBOL\t\n' >>"$T/patched/Module.symvers"
	sed -i 's,^.*XXX 6 bytes.*,\tbool x; /* 18 1 */,' "$T/patched/layouts"
	compare -0
	[ "$output" = "kabi: 6.1: 0 of 2 symbols differ, 0 of 2 structs have another layout" ]
}

@test "kabi: a changed CRC fails, and the type that changed is reported" {
	kernel patched bbbbbbbb
	compare -1
	[ "${lines[0]}" = "register_user_hw_breakpoint (vmlinux): CRC 0xaaaaaaaa -> 0xbbbbbbbb" ]
	[ "${lines[-1]}" = "kabi: 6.1: 1 of 2 symbols differ, 0 of 2 structs have another layout" ]
	symtypes patched 'u16 read_size ; bool x ;'
	compare -1
	[ "${lines[0]}" = "register_user_hw_breakpoint (vmlinux): CRC 0xaaaaaaaa -> 0xbbbbbbbb: struct perf_event" ]
	[ "${lines[1]}" = "struct perf_event, as modules see it:" ]
	[ "${lines[2]}" = "    - handler orig" ]
	[ "${lines[3]}" = "    + bool x" ]
	[ "${#lines[@]}" -eq 5 ]
}

@test "kabi: a symbol that is gone, has another namespace or licence, or has no CRC fails" {
	sed -i /kvm/d "$T/patched/Module.symvers"
	compare -1
	[ "${lines[0]}" = "kvm_read_guest (arch/x86/kvm/kvm): is gone" ]
	kernel patched aaaaaaaa
	sed -i 's/KVM$//; s/EXPORT_SYMBOL_GPL/EXPORT_SYMBOL/' "$T/patched/Module.symvers"
	compare -1
	[ "${lines[0]}" = "kvm_read_guest (arch/x86/kvm/kvm): licence EXPORT_SYMBOL_GPL -> EXPORT_SYMBOL, namespace KVM -> none" ]
	[ "${lines[-1]}" = "kabi: 6.1: 2 of 2 symbols differ, 0 of 2 structs have another layout" ]
	kernel stock 00000000
	kernel patched 00000000
	compare -1
	[ "${lines[0]}" = "register_user_hw_breakpoint (vmlinux): has no CRC, so it cannot be compared" ]
}

@test "kabi: a struct that grows, and a member that moves or is gone, fail" {
	sed -i 's/size: 4,/size: 8,/; s/32     8/40     8/; /read_size/d; s/24: 0/24: 1/' "$T/patched/layouts"
	compare -1
	[ "${lines[0]}" = "struct perf_event: 40 bytes, now 40" ]
	[ "${lines[1]}" = "    u16 read_size: was 2 bytes at 16, is gone" ]
	[ "${lines[2]}" = "    u32 low:1: was 4 bytes at 24, is 4 at 24 bit 1" ]
	[ "${lines[3]}" = "    struct bpf_prog * prog: was 8 bytes at 32, is 8 at 40" ]
	[ "${lines[4]}" = "struct pmu: 4 bytes, now 8" ]
	[ "${lines[5]}" = "kabi: 6.1: 0 of 2 symbols differ, 2 of 2 structs have another layout" ]
}

@test "kabi: a struct that no symbol reaches may grow" {
	sed -i 's/size: 8,/size: 16,/' "$T/patched/layouts"
	compare -0
	[ "${lines[0]}" = "struct bpf_perf_event_data_kern: 8 bytes, now 16; no symbol reaches it" ]
	[ "${lines[1]}" = "kabi: 6.1: 0 of 2 symbols differ, 0 of 2 structs have another layout" ]
}

# measures -STATUS: runs scripts/prove/kabi with a base of the series "stock" and "patched" of setup() instead of builds
measures() {
	local name
	fake_top deps apply build
	fake_series "$T/top/patches/linux-6.1"
	program "$T/top/scripts/fetch" "echo '$BUILD/linux-6.1.9-1/stock'"
	command_is make 'exit 0'
	command_is pahole "name=\${1%%/obj-kabi/*}; cat '$T'/\${name##*/}/layouts"
	for name in stock patched; do
		rm -rf "$BUILD/linux-6.1.9-1/$name"
		mkdir -p "$BUILD/linux-6.1.9-1/$name"
		cp -r "$T/$name" "$BUILD/linux-6.1.9-1/$name/obj-kabi"
	done
	rm -rf "$BUILD/runs"
	run "$1" "$T/top/scripts/prove/kabi" 6.1
}

@test "kabi: the numbers of symbols and structs are noted for make results, unless one differs" {
	measures -0
	[ "$output" = "kabi: 6.1: 0 of 2 symbols differ, 0 of 2 structs have another layout" ]
	grep -q '{"command": "make kabi", "counts": "symbols, structs", "name": "6.1", "figure": "2, 2", "of": "' "$BUILD/runs/make-kabi-6.1.json"
	kernel patched bbbbbbbb
	measures -1
	[ ! -e "$BUILD/runs" ]
	kernel patched aaaaaaaa
	sed -i 's/size: 4,/size: 8,/' "$T/patched/layouts"
	measures -1
	[ ! -e "$BUILD/runs" ]
}

@test "kabi: truncated, empty and missing files are errors" {
	truncate -s -5 "$T/patched/Module.symvers"
	compare -1
	one_line "kabi: $T/patched/Module.symvers:2: not a symbol with its CRC (a file cut short?): 0x11111111*"
	kernel patched aaaaaaaa
	: >"$T/stock/Module.symvers"
	compare -1
	one_line "kabi: $T/stock/Module.symvers: holds no symbol"
	kernel stock aaaaaaaa
	: >"$T/patched/layouts"
	compare -1
	one_line "kabi: $T/patched/layouts: has no struct perf_event (a file cut short?)"
	kernel patched aaaaaaaa
	rm "$T/stock/kernel/events/hw_breakpoint.symtypes"
	compare -1
	one_line "kabi: $T/stock: no symbol reaches struct perf_event; *"
	kernel stock aaaaaaaa
	rm "$T/patched/Module.symvers"
	compare -1
	one_line "kabi: $T/patched/Module.symvers: No such file or directory; build the kernel first"
}
