#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0
load common

setup() {
	set_up
	fake_qemu
	echo kernel >"$T/bzImage"
}

# boots GUEST [ARGUMENT...]: runs boot with a fake QEMU that runs GUEST
boots() {
	export FAKE_GUEST=$1
	run "$SCRIPTS/boot" --accel tcg --timeout 2 --out "$T/out" "${@:2}" "$T/bzImage" -- "${COMMAND:-perf_bpf_filter}"
}

outcome_is() {
	[ "$status" -eq "$2" ] && grep -q "\"outcome\": \"$1\"" "$T/out/boot.json"
}

@test "boot: passes on the command's output and exit code" {
	boots 'up; echo "ok 1 a" >>"$output"; echo "exit 0" >"$verdict"'
	outcome_is passed 0
	[ "$output" = "ok 1 a" ]
}

@test "boot: a relative path of a program is made absolute" {
	printf '#!/bin/sh\n' >"$T/program"
	command='cat ${verdict%/*}/command >>"$output"'
	cd "$T"
	COMMAND=./program boots "up; $command; echo 'exit 0' >\"\$verdict\""
	outcome_is passed 0
	[ "$output" = "$T/program" ]
}

@test "boot: a crash of QEMU is an error, and not an outcome of the guest" {
	boots 'up; kill -SEGV $$'
	outcome_is lost 2
	[ "${lines[-1]}" = "boot: QEMU was killed by signal 11; the console is $T/out/console.log" ]
}

@test "boot: each way in which a guest may end has its outcome and exit code" {
	local ways
	# A loop that reads from stdin would end early if boot read from it, too.
	mapfile -t ways <<-'END'
	failed|1|up; echo "exit 7" >"$verdict"
	no-boot|10|say "Linux version 6.1.9 (gcc)"; say "Kernel panic - not syncing: VFS: Unable to mount root fs"
	no-boot|10|sleep 60 # prints nothing
	lost|11|up; echo "ok 1 a" >>"$output"; exit 0
	lost|11|up; printf "exit " >"$verdict" # an incomplete verdict does not count
	hang|12|up; echo "ok 1 a" >>"$output"; exec sleep 60
	passed|0|up; echo "exit 0" >"$verdict"; exec sleep 60
	splat|13|up; echo "exit 0" >"$verdict"; say "Kernel panic - not syncing: Attempted to kill init!"
	splat|13|up; say "[    1.0] BUG: KASAN: use-after-free in bpf_overflow_handler+0x1/0x2"; echo "exit 0" >"$verdict"
	passed|0|up; say "[    1.0] traps: a[77] general protection fault ip:401136 sp:7ffc error:0 in a[401000+1000]"; echo "exit 0" >"$verdict"
	END
	for way in "${ways[@]}"; do
		IFS='|' read -r outcome code guest <<<"$way"
		boots "$guest"
		outcome_is "$outcome" "$code" || { echo "not $outcome: $guest"; false; }
		[ "$code" -le 1 ] || [[ $output == *"$T/out/console.log"* ]]
		[ "$outcome" != failed ] || grep -q '"exit": 7' "$T/out/boot.json"
	done
}

@test "boot: a guest that crashes on an int3 that is not in memory is booted again" {
	died='say "[   13.7] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI"; say "[   13.7] Code: fb 0f 1f 44 00 00 CODE 1f> 44 00 00 45"; exit 0'
	once="[ -e $T/once ] || { touch $T/once; ${died/CODE 1f/0f <1f}; }"
	boots "up; $once; echo 'ok 1 a' >>\"\$output\"; echo 'exit 0' >\"\$verdict\""
	outcome_is passed 0
	grep -q '"again": 1' "$T/out/boot.json"
	[[ $output == *"boot: QEMU ran an int3 that is no longer in memory; again"* ]]
	grep -q 'Oops: int3' "$T/out/console-1.log"
	# It is booted three times at most.
	boots "up; ${died/CODE 1f/0f <1f}"
	outcome_is splat 13
	grep -q '"again": 2' "$T/out/boot.json"
	# These are real splats: an int3 that is in memory, and one after another splat.
	boots "up; ${died/CODE 1f/cc <1f}"
	outcome_is splat 13
	grep -q '"again": 0' "$T/out/boot.json"
	boots "up; say 'BUG: kernel NULL pointer dereference, address: 0'; ${died/CODE 1f/0f <1f}"
	outcome_is splat 13
	grep -q '"again": 0' "$T/out/boot.json"
}

@test "boot: a guest that is stuck at an int3 that is not in memory is booted again" {
	once="[ -e $T/once ] || { touch $T/once; int3s ffffffff8112 eb 150; }"
	boots "up; $once; echo 'exit 0' >\"\$verdict\""
	outcome_is passed 0
	grep -q '"again": 1' "$T/out/boot.json"
	[ "$output" = "boot: QEMU ran an int3 that is no longer in memory, forever at ffffffff8112; again" ]
	# The same before init starts, in every boot.
	boots 'say "Linux version 6.1.9 (gcc)"; int3s ffffffff8112 eb 150'
	outcome_is no-boot 10
	grep -q '"again": 2' "$T/out/boot.json"
	# No repetition: an int3 that is in memory; only a few int3s, as from a kprobe; a monitor that does
	# not answer; a command that is working.
	for guest in "int3s ffffffff8112 cc 150" "int3s ffffffff8112 eb 50" "exec sleep 60 # int3s"; do
		boots "up; $guest"
		outcome_is hang 12
		grep -q '"again": 0' "$T/out/boot.json"
	done
	boots "up; int3s ffffffff8112 eb 150 & for i in 1 2 3 4 5 6; do sleep 0.2; say at work; done; echo 'exit 0' >\"\$verdict\"; kill %1"
	outcome_is passed 0
	grep -q '"again": 0' "$T/out/boot.json"
}

@test "boot: a panic during the tests is a splat, with the name of the test" {
	boots 'up; say "perf_bpf_filter: test effects.sigio"; say "BUG: kernel NULL pointer dereference, address: 0"; say "Kernel panic - not syncing: Fatal exception"'
	outcome_is splat 13
	[[ $output == *"(during test effects.sigio): BUG: kernel NULL pointer"* ]]
}

@test "boot: recognises splats, and no lines that only look like one" {
	cd "$SCRIPTS"
	python3 -B - <<-'END'
	from lab import splat
	splats = """\
	WARNING: CPU: 1 PID: 77 at kernel/events/core.c:9487 __perf_event_overflow+0x1/0x2
	WARNING: kernel/events/core.c:9487 at __perf_event_overflow+0x1/0x2, CPU#1: tainter/77
	WARNING: possible recursive locking detected
	WARNING: suspicious RCU usage
	BUG: KASAN: use-after-free in bpf_overflow_handler+0x1/0x2
	BUG: KCSAN: data-race in perf_event_free_bpf_prog / __perf_event_overflow
	BUG: sleeping function called from invalid context at kernel/locking/mutex.c:580
	BUG: scheduling while atomic: swapper/0/1/0x2
	BUG kmalloc-64 (Not tainted): Poison overwritten
	BUG task_struct (Tainted: G        W         ): Object padding overwritten
	rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
	rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-...D } 21 jiffies s: 5 root: 0x2/.
	rcu: INFO: rcu_sched self-detected stall on CPU
	INFO: task perf:77 blocked for more than 120 seconds.
	INFO: task perf:1 blocked in I/O wait for more than 122 seconds.
	watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [perf:77]
	NMI watchdog: Watchdog detected hard LOCKUP on cpu 0
	general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP
	general protection fault: 0000 [#1] SMP
	invalid opcode: 0000 [#1] PREEMPT SMP NOPTI
	divide error: 0000 [#2] SMP
	int3: 0000 [#1] PREEMPT SMP NOPTI
	traps: PANIC: double fault, error_code: 0x0
	Oops: 0000 [#1] PREEMPT SMP
	UBSAN: shift-out-of-bounds in kernel/events/core.c:1:1
	refcount_t: underflow; use-after-free.
	list_del corruption. prev->next should be ffff8880, but was 0
	unchecked MSR access error: WRMSR to 0x38f (tried to write 0x7) at rIP: 0xffffffff8106
	Uhhuh. NMI received for unknown reason 20 on CPU 0.
	Internal error: Oops: 0000000096000004 [#1] PREEMPT SMP
	Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008
	Unable to handle kernel paging request at virtual address dead000000000108
	Unexpected kernel BRK exception at EL1
	Unexpected kernel single-step exception at EL1""".splitlines()
	for line in splats:
	    assert splat.splats(f"[    1.000000] {line}\n", []), line
	    words = line.lstrip("\t")
	    for at in range(1, len(words)):
	        # Between two halves, a line of another CPU, with its end or without, or two of its lines.
	        for other in "[    1.000001] eth0: up\n", "[    1.000001] ", "[    1.000001] eth0: up\n[    1.000002] eth1: up\n":
	            assert splat.splats(f"[    1.000000] {words[:at]}{other}{words[at:]}\n", []), (other, words[:at])
	for line in """\
	ACPI: please report a bug: BUG
	debug: DEBUG_BUGVERBOSE
	Spectre V2: Mitigation
	traps: perf_bpf_filter[77] general protection fault ip:401136 sp:7ffc error:0 in perf_bpf_filter[401000+1000]
	INFO: task is done
	perf_bpf_pmu: loading out-of-tree module taints kernel.""".splitlines():
	    assert not splat.splats(f"[    1.000000] {line}\n", []), line
	END
}

@test "boot: allow-splats allows only the messages that it names" {
	cd "$SCRIPTS"
	python3 -B - <<-'END'
	from lab import splat
	kernel = "Linux version 6.1.9 (gcc)\nperf_bpf_filter: test races.shared_map.hash\n"
	race = kernel + "BUG: KCSAN: data-race in {}\n"
	for names in "event_sched_out / list_add_event", "event_sched_in / __event_disable", "kill_fasync / fcntl_setlk", \
	        "merge_sched_in / x", "group_sched_out / x", "ring_buffer_wakeup / x", "send_sigio / x", "irq_work_queue / x", \
	        "htab_map_update_elem / x", "inherit_task_group.isra.0 / x", "task_bps_mutex / x", "arch_do_signal_or_restart / x":
	    assert splat.splats(race.format(names)), names
	assert not splat.splats(race.format("tick_nohz_next_event / tick_sched_do_timer"))
	lock = kernel + "WARNING: inconsistent lock state\n6.1.9 Not tainted\nx/7 [HC1[1]:SC0[0]:HE0:SE1] takes:\nffff8880 ({}){{....}}-{{2:2}}, at: f+0x1/0x2\n"
	for name in "&htab->lockdep_key", "&trie->lock", "&rb->spinlock", "&qs->lock":
	    assert not splat.splats(lock.format(name)), name
	for name in "&ctx->lock", "&rq->__lock", "&cpuctx_lock", "&event->child_mutex":
	    assert splat.splats(lock.format(name)), name
	assert splat.splats(kernel + "WARNING: inconsistent lock state\n")
	END
}

@test "boot: each entry of allow-splats has a reason, and is a splat without the entry" {
	cd "$SCRIPTS"
	python3 -B - <<-'END'
	from lab import splat
	for entry in splat.read_allowed():
	    running = f"perf_bpf_filter: test {entry.tests.replace('*', 'some')}\n"
	    for base in entry.bases:
	        kernel = f"Linux version {base}.9 (gcc)\n"
	        assert not splat.splats(kernel + running + entry.line), entry
	        assert entry.tests == "*" or splat.splats(kernel + "perf_bpf_filter: test other\n" + entry.line), entry
	        assert not entry.then or splat.splats(kernel + running + entry.line.partition("\n")[0]), entry
	    if entry.bases:
	        assert splat.splats("Linux version 1.0.9 (gcc)\n" + running + entry.line), entry
	        entry = entry._replace(bases=[])
	    assert entry.reason and not splat.splats(running + entry.line, [entry]), entry
	    assert entry.tests == "*" or splat.splats("perf_bpf_filter: test other\n" + entry.line), entry
	    assert splat.splats(running + entry.line, []), f"nothing needs {entry}"
	    only = [entry._replace(bases=["6.1"])]
	    assert not splat.splats(f"Linux version 6.1.9 (gcc)\n{running}{entry.line}", only)
	    assert splat.splats(f"Linux version 6.12.9 (gcc)\n{running}{entry.line}", only)
	    assert splat.splats(running + entry.line, only)
	END
}

@test "boot: finds a splat between binary data, and prints no escape sequences" {
	boots 'up; head -c 2000 /dev/urandom >>"$console"; say ""; printf "\033[2J\033[31mWARNING: CPU: 0\007\r\n" >>"$console"; echo "exit 0" >"$verdict"'
	outcome_is splat 13
	[[ $output != *$'\033'* ]]
}

@test "boot: an old verdict in the folder does not count" {
	boots 'up; echo "exit 0" >"$verdict"'
	boots 'up'
	outcome_is lost 11
}

@test "boot: when killed, leaves no guest, and the outcome is lost" {
	export FAKE_GUEST='up; echo $$ >"'$T'/guest"; exec sleep 60'
	"$SCRIPTS/boot" --accel tcg --out "$T/out" "$T/bzImage" -- true 3>&- &
	for _ in $(seq 100); do [ -s "$T/guest" ] && break; sleep 0.1; done
	kill -9 $!
	wait $! || true
	for _ in $(seq 50); do kill -0 "$(cat "$T/guest")" 2>/dev/null || break; sleep 0.1; done
	! kill -0 "$(cat "$T/guest")" 2>/dev/null || false
	grep -q '"outcome": "lost"' "$T/out/boot.json"
}

@test "boot: uses KVM only if a guest boots on it, and tries that once" {
	[ -w /dev/kvm ] || skip "no /dev/kvm"
	# A guest that boots only without KVM.
	export FAKE_GUEST='echo "$*" >>"'$T'/tried"; [[ $* == *"-accel kvm"* ]] && kill -ABRT $$; up; echo "exit 0" >"$verdict"'
	for _ in 1 2; do
		run -0 "$SCRIPTS/boot" --out "$T/out" "$T/bzImage" -- true
		grep -q '"accel": "tcg"' "$T/out/boot.json"
	done
	[ "$(grep -c -- '-accel kvm' "$T/tried")" -eq 1 ]
	[ "$(grep -c -- '-accel tcg' "$T/tried")" -eq 2 ]
}

@test "boot: --accel icount boots one CPU deterministically" {
	export FAKE_GUEST='printf "%s\n" "$@" >"'$T'/arguments"; up; echo "exit 0" >"$verdict"'
	run "$SCRIPTS/boot" --accel icount --append quiet --out "$T/out" "$T/bzImage" -- true
	outcome_is passed 0
	grep -q '"accel": "icount"' "$T/out/boot.json"
	[[ $(xargs <"$T/arguments") == *"-accel tcg,thread=single -icount shift=0,sleep=off "*" -smp 1 "* ]]
	grep -qE '^console=.* norandmaps quiet$' "$T/arguments"
	run -2 "$SCRIPTS/boot" --accel icount --smp 2 --out "$T/out" "$T/bzImage" -- true
	one_line "boot: --accel icount supports one CPU, not 2"
}

# arguments OPTION...: boots with these options, and keeps QEMU's arguments
arguments() {
	boots 'printf "%s\n" "$@" >"'$T'/arguments"; up; echo "exit 0" >"$verdict"' "$@"
}

@test "boot: by default, two CPUs on TCG without icount; --machine and --memory are passed to QEMU" {
	arguments
	[[ $(xargs <"$T/arguments") == *"-accel tcg,thread=multi -cpu max -smp 2 "* ]]
	[[ $(xargs <"$T/arguments") == *" -m 512M -machine pc "* ]]
	[[ $(cat "$T/arguments") != *icount* ]]
	grep -qE '^console=.* printk.time=1$' "$T/arguments"
	arguments --smp 4
	[[ $(xargs <"$T/arguments") == *" -smp 4 "* ]]
	arguments --in-turns
	[[ $(xargs <"$T/arguments") == *"-accel tcg,thread=single -cpu max -smp 2 "* ]]
	arguments --machine q35 --memory 2G
	[[ $(xargs <"$T/arguments") == *" -m 2G -machine q35 "* ]]
}

@test "boot: loads the PMU for guests, and holds perf's static keys only with --hold-keys" {
	local image=$T/obj/arch/x86/boot/bzImage module=$T/obj/perf_bpf_pmu/perf_bpf_pmu.ko
	install -D /dev/null "$image"
	install -D /dev/null "$module"
	export FAKE_GUEST='echo "$@" >"$T/command"; up; echo "exit 0" >"$verdict"' T
	run "$SCRIPTS/boot" --accel tcg --timeout 2 --out "$T/out" "$image" -- true
	grep -q " guest.module=$module " "$T/command"
	run "$SCRIPTS/boot" --accel tcg --timeout 2 --out "$T/out" --hold-keys "$image" -- true
	grep -q " guest.module=$module,hold=1 " "$T/command"
}

@test "boot: a missing image, QEMU or command is refused" {
	run "$SCRIPTS/boot" --out "$T/out" "$T/none" -- true
	one_line "boot: no such kernel image: $T/none; *"
	run "$SCRIPTS/boot" --qemu no-such-qemu --out "$T/out" "$T/bzImage" -- true
	one_line "boot: no-such-qemu is not installed; *"
	run -2 "$SCRIPTS/boot" --out "$T/out" "$T/bzImage"
}

@test "boot: if nothing can be booted, an old verdict is removed" {
	boots 'up; echo "exit 0" >"$verdict"'
	outcome_is passed 0
	cp -r "$T/out" "$T/passed"
	printf 'no program' >"$T/bin/broken-qemu" && chmod +x "$T/bin/broken-qemu"
	for arguments in "$T/none" "--qemu no-such-qemu $T/bzImage" "--qemu broken-qemu $T/bzImage"; do
		cp "$T/passed/boot.json" "$T/out"
		# shellcheck disable=SC2086
		run "$SCRIPTS/boot" --accel tcg --out "$T/out" $arguments -- true
		one_line "boot: *"
		outcome_is lost 2
	done
}

@test "boot: reports a read-only folder and a full disk" {
	mkdir "$T/out"
	mount -t tmpfs -o ro tmpfs "$T/out" 2>/dev/null || skip "cannot mount a tmpfs"
	run "$SCRIPTS/boot" --accel tcg --out "$T/out" "$T/bzImage" -- true
	umount "$T/out"
	one_line "boot: cannot write to $T/out: Read-only file system"
	[ "$status" -eq 2 ]

	# The tests continue, but their results cannot be written.
	mount -t tmpfs -o size=64k tmpfs "$T/out"
	boots 'up; head -c 90000 /dev/zero >>"$console"; echo "ok 1 a" >>"$output"; echo "exit 0" >"$verdict"'
	outcome_is lost "$status" || { umount "$T/out"; false; }
	umount "$T/out"
	[ "$status" -ge 2 ]
	[[ $output == *"boot: "* && $output != *Traceback* ]]

	# There is room for the verdict, but not for the results.
	mount -t tmpfs -o size=64k tmpfs "$T/out"
	boots 'up; echo "exit 0" >"$verdict"; head -c 90000 /dev/zero >>"$console"'
	outcome_is lost 2 || { umount "$T/out"; false; }
	umount "$T/out"
	one_line "boot: cannot write the results: No space left on device"
}

@test "boot: a guest that is stopped by a signal is reported as hang" {
	boots 'up; echo "ok 1 a" >>"$output"; echo $$ >"'$T'/guest"; kill -STOP $$'
	outcome_is hang 12
	! kill -0 "$(cat "$T/guest")" 2>/dev/null || false
}

@test "boot: a guest that writes without end is terminated, and is lost despite its verdict" {
	for log in console output verdict; do
		boots 'up; echo "exit 0" >"$verdict"; exec cat /dev/zero >>"$'$log'"'
		outcome_is lost 11
		[[ $output == *"boot: the guest wrote more than 16 MiB to $log"* ]]
		[ "$(du -cb "$T"/out/* | tail -n 1 | cut -f 1)" -le $((17 << 20)) ]
		rm -r "$T/out"
	done
}

@test "boot: no output of a program on the console hides a splat" {
	splats=('BUG: kernel NULL pointer dereference, address: 0' 'WARNING: CPU: 1 PID: 7 at kernel/events/core.c:1 f+0x1/0x2'
		'kernel BUG at kernel/events/core.c:1!' 'UBSAN: shift-out-of-bounds in a.c:1:1' 'Oops: 0000 [#1] PREEMPT SMP')
	for before in 'x' 'a_' '\033[' '\033[3' '\033]0;' '\r' '\0' '\377\376' '\303' 'BUG_ON ' 'please report a bug ' \
		'perf_bpf_filter: test a ' "$(seq -s ' ' 2000 | tr -d '\n')" "$(printf '%4095s' '')"; do
		FAKE_CONSOLE=
		for splat in "${splats[@]}"; do FAKE_CONSOLE+="$before$splat\\r\\n"; done
		export FAKE_CONSOLE
		boots 'up; printf "$FAKE_CONSOLE" >>"$console"; echo "exit 0" >"$verdict"'
		outcome_is splat 13
		for splat in "${splats[@]}"; do
			grep -F "boot: kernel splat" <<<"$output" | grep -qF "$splat" || { echo "hidden by '$before': $splat"; false; }
		done
	done
}

@test "boot: searches 16 MiB of console output in seconds" {
	boots 'up; yes "WARNING: taint INFO: task rcu: INFO: " | tr -d "\n" | head -c 16000000 >>"$console"; echo "exit 0" >"$verdict"'
	[ "$status" -eq 13 ] || [ "$status" -eq 0 ]
	[ "$SECONDS" -lt 60 ]
}
