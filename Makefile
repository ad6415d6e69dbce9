# SPDX-License-Identifier: GPL-2.0
# Each command is a program in scripts/ that can be run alone and has --help.

BASE ?= 6.1
BASES = $(shell /usr/bin/python3 -B scripts/lab make bases)
# Precedes a command that exists for x86 only: skips it for other architectures.
X86 = $(if $(filter-out x86 x86_64,$(ARCH)),:)
# A variable as one argument for the shell, or none if it is empty.
arg = $(if $(1),'$(subst ','\'',$(1))')
build = $(or $(BUILD),build)
export VERSION KSRC BUILD ACCEL PART

help:
	@echo 'BPF programs that suppress every side effect of a perf breakpoint hit, for long-term kernels'
	@echo
	@echo '  make verify        build the stock and the patched kernel, boot both in QEMU, compare them'
	@echo '  make check         test 6.1 in full and the other series briefly; make verify is part of it'
	@echo '  make try           run tests on the patched kernel: make try TEST="effects.*"'
	@echo '  make apply         apply the series to your kernel tree: make apply KSRC=/path/to/linux'
	@echo '  make probe         show which side effects the running kernel suppresses'
	@echo '  make gdb           build perf_bpf_gdb, which evaluates conditions of gdb in the kernel'
	@echo '  make livepatch     build the series as a module for the running kernel (experimental)'
	@echo '  make livepatch-deb write a Debian package that builds that module for each kernel'
	@echo '  make help-all      all other commands'
	@echo
	@echo '  BASE=6.1           the kernel line: $(BASES)'
	@echo '                     verify, mutants and soak also accept a Debian kernel, and use its live patch'
	@echo '  KSRC=/path         your kernel tree instead of the one that is fetched; only apply writes to it'
	@echo '  ARCH=arm64         for the commands that boot kernels; the default is x86'

help-all: help
	@echo '  PART=feature       for apply, verify and dist: only the first section of the series (up to 6.6)'
	@echo '  VERSION=6.1.190-1  a point release other than the newest'
	@echo '  KERNEL=NAME        for livepatch, verify-live and stock: a kernel of Debian, as uname -r prints it'
	@echo '  KEY= CERT=         for livepatch: sign the module'
	@echo '  IMAGE=/path        for fuzz: a kernel other than the one that make verify built'
	@echo '  ACCEL=auto         the accelerator of QEMU: auto (KVM if a guest boots with it), kvm or tcg'
	@echo '  BUILD=/path        the build folder; the default is build/'
	@echo '  KERNEL_MIRROR=URL  where the sources of kernel.org are: https://cdn.kernel.org/pub/linux/kernel'
	@echo
	@echo 'test'
	@echo '  make selftests     build the suite and the probe into build/selftests'
	@echo '  make verify-live   boot a Debian kernel; compare it before, with and after the live patch'
	@echo '  make stock         boot the kernels that Debian ships, and record what works in each'
	@echo '  make matrix        verify each base whose source is at hand, its module ABI and prices'
	@echo '  make mutants       break one rule at a time; the tests named for it must fail'
	@echo '                     GENERATED=100: run 100 mutants that are generated from the series'
	@echo '  make prefixes      build and boot with the first patch, the first two, and so on'
	@echo '  make debug         run the suite under KASAN, lockdep, KCSAN, PREEMPT_RT and others'
	@echo '  make stress        count hits for MINUTES=2 while events change, tasks fork, CPUs go offline'
	@echo '  make fuzz          make CALLS=n bad calls on filtered events; nothing may break or leak'
	@echo '  make soak          boot N=100 times with different CPUs and preemption; compare the results'
	@echo '  make faults        run guests that try to harm the host or forge a result'
	@echo '  make peers         run perf, the kernel selftests, gdb and bpftrace on both kernels'
	@echo '  make bench         count the instructions of a hit, and of other ways to stop at one'
	@echo 'publish'
	@echo '  make series-check  check a series as an integrator would, on every point release'
	@echo '  make kabi          compare symbol CRCs and struct layouts of stock and patched kernel'
	@echo '  make dist          write dist/linux-BASE.mbox with a cover letter; for 7.3 also dist/upstream'
	@echo '  make labs          write dist/labs: jobs for LAVA, kselftest, autopkgtest and KCIDB'
	@echo '  make results       record what was measured in patches/results.json, and write all pages from it'
	@echo '  make fetch         fetch the source of a kernel, and print its path'
	@echo '  make version       print the version'
	@echo '  make clean         remove build/'

verify:
	@scripts/verify $(call arg,$(BASE))

stock:
	@scripts/prove/stock $(call arg,$(KERNEL))

# verify leaves out gdb.*, which takes minutes. On 5.10, which has no attr.sigtrap, perf_bpf_gdb passes on all packets.
matrix:
	@bases=$$(/usr/bin/python3 -B scripts/lab make at-hand) || exit; code=0; for base in $$bases; do \
		scripts/verify --each-oops $$base || code=1; $(X86) scripts/prove/kabi $$base || code=1; \
		$(X86) scripts/prove/bench --check $$base || code=1; \
		[ $$base = 5.10 ] || $(X86) scripts/try --record $$base 'gdb.*' || code=1; done; \
		$(X86) scripts/verify live || code=1; \
		scripts/matrix && exit $$code

check:
	@scripts/check

debug faults kabi peers:
	@scripts/prove/$@ $(call arg,$(BASE))

dist:
	@scripts/ship/dist $(call arg,$(BASE))

labs results version:
	@scripts/ship/$@

series-check:
	@scripts/deps --for check
	@scripts/prove/series-check --full $(call arg,$(BASE))

prefixes:
	@scripts/deps
	@scripts/prove/prefixes $(call arg,$(BASE))

try:
	@scripts/try $(call arg,$(BASE)) $(foreach test,$(TEST),$(call arg,$(test)))

mutants:
	@$(if $(GENERATED),scripts/prove/generate-mutants,scripts/prove/mutants) $(call arg,$(BASE)) $(call arg,$(GENERATED))

bench:
	@scripts/deps
	@scripts/prove/bench

soak:
	@scripts/prove/soak $(call arg,$(BASE)) $(call arg,$(N))

stress:
	@scripts/deps
	@scripts/prove/stress $(call arg,$(BASE)) $(call arg,$(MINUTES))

fuzz:
	@scripts/prove/fuzz $(call arg,$(BASE)) $(call arg,$(CALLS))

apply:
	@$(if $(KSRC),,echo 'make apply: KSRC is not set; run make apply KSRC=/path/to/linux' >&2; exit 2)
	@scripts/apply $(call arg,patches/linux-$(BASE)) $(call arg,$(KSRC))

livepatch:
	@scripts/livepatch/build $(call arg,$(KERNEL))

livepatch-deb:
	@scripts/livepatch/deb

verify-live:
	@scripts/verify $(call arg,$(or $(KERNEL),live))

fetch:
	@scripts/fetch $(call arg,$(BASE)) $(call arg,$(VERSION))

selftests:
	@scripts/deps
	@mkdir -p $(call arg,$(build))
	@ksrc=$(if $(KSRC),$(call arg,$(abspath $(KSRC))),$$(scripts/fetch $(call arg,$(BASE)) $(call arg,$(VERSION)))) && \
		$(MAKE) --no-print-directory -C selftests OUT=$(call arg,$(abspath $(build))/selftests) KSRC="$$ksrc"

probe:
	@scripts/deps --for probe
	@mkdir -p $(call arg,$(build))
	@echo 'building the probe' >&2
	@$(MAKE) --no-print-directory -s -j"$$(nproc)" -C selftests probe OUT=$(call arg,$(abspath $(build))/probe)
	@$(call arg,$(build)/probe/perf_bpf_probe)

gdb:
	@scripts/deps --for probe gdb gdbserver
	@mkdir -p $(call arg,$(build))
	@echo 'building perf_bpf_gdb' >&2
	@$(MAKE) --no-print-directory -s -j"$$(nproc)" -C selftests gdb OUT=$(call arg,$(abspath $(build))/gdb)
	@echo 'built; in gdb: target extended-remote | '$(call arg,$(abspath $(build))/gdb/perf_bpf_gdb)' PROGRAM ARGUMENT...'

clean:
	rm -rf $(call arg,$(build))

.PHONY: help help-all verify stock try matrix labs check series-check prefixes dist mutants kabi peers bench soak faults debug \
	stress fuzz apply livepatch livepatch-deb verify-live fetch selftests probe gdb results version clean
