# SPDX-License-Identifier: GPL-2.0
# Most commands are programs in scripts/ that can be run alone and have --help.

BASE ?= 6.1
BASES = $(shell /usr/bin/python3 -B scripts/lab make bases)
# Precedes a command that exists for x86 only: skips it for other architectures.
X86 = $(if $(filter-out x86 x86_64,$(ARCH)),:)
# A variable as one argument for the shell, or none if it is empty.
arg = $(if $(1),'$(subst ','\'',$(1))')
# BASE if the user has set it, for commands that otherwise take all bases.
given = $(if $(filter command environment,$(firstword $(origin BASE))),$(call arg,$(BASE)))
build = $(or $(BUILD),build)
export VERSION KSRC BUILD ACCEL PART

help:
	@echo 'BPF programs that suppress every side effect of a perf breakpoint hit,'
	@echo 'for long-term kernels'
	@echo
	@echo '  make verify        build stock and patched kernel, and compare both in QEMU'
	@echo '  make check         test 6.1 in full (make verify included), others briefly'
	@echo '  make try           run tests on the patched kernel: make try TEST="effects.*"'
	@echo '  make apply         apply the series to a tree: make apply KSRC=/path/to/linux'
	@echo '  make probe         show which side effects the running kernel suppresses'
	@echo '  make gdb           build perf_bpf_gdb: the kernel evaluates conditions of gdb'
	@echo '  make livepatch     build a live patch of the running kernel (experimental)'
	@echo '  make livepatch-deb write a Debian package that builds it for each kernel'
	@echo '  make help-all      all other commands'
	@echo
	@echo '  BASE=6.1           the kernel line: $(BASES)'
	@echo '                     verify, mutants, soak, peers also take the name of a Debian'
	@echo '                     kernel, and use its live patch'
	@echo '  KSRC=/path         your kernel tree, instead of fetching the source; only make'
	@echo '                     apply changes the tree'
	@echo '  ARCH=arm64         for the commands that boot kernels; the default is x86'

help-all: help
	@echo '  PART=feature       for apply, verify and dist: only the first section of the'
	@echo '                     series (up to 6.6)'
	@echo '  VERSION=6.1.190-1  a point release other than the newest'
	@echo '  KERNEL=NAME        for livepatch, verify-live and stock: a kernel of Debian,'
	@echo '                     named as uname -r prints it'
	@echo '  KEY= CERT=         for livepatch: sign the module'
	@echo '  IMAGE=/path        for fuzz: a kernel that make verify did not build'
	@echo '  ACCEL=auto         the accelerator of QEMU: kvm, tcg, or auto: KVM if a guest'
	@echo '                     boots with it'
	@echo '  BUILD=/path        the build folder; the default is build/'
	@echo '  KERNEL_MIRROR=URL  for sources from kernel.org: a mirror, such as'
	@echo '                     https://cdn.kernel.org/pub/linux/kernel'
	@echo
	@echo 'test'
	@echo '  make selftests     build the suite and the probe into build/selftests'
	@echo '  make verify-live   test a Debian kernel before, with and after the live patch'
	@echo '  make stock         run the suite on each kernel of Debian, record the results'
	@echo '  make matrix        verify each base whose source is at hand, ABI and prices'
	@echo '  make mutants       break one rule at a time; the tests named for it must fail'
	@echo '                     GENERATED=100: run 100 mutants generated from the series'
	@echo '  make prefixes      build and boot with the first patch, the first two, ...'
	@echo '  make debug         run the suite under KASAN, lockdep, KCSAN, PREEMPT_RT, ...'
	@echo '  make stress        count hits for MINUTES=2 while events change, tasks fork,'
	@echo '                     and CPUs go offline'
	@echo '  make fuzz          make CALLS=n bad calls on filtered events; none may'
	@echo '                     break or leak anything'
	@echo '  make soak          boot N=100 times with different CPUs and preemption modes,'
	@echo '                     and compare the results'
	@echo '  make faults        run guests that try to harm the host or forge a result'
	@echo '  make peers         run perf, selftests, gdb and bpftrace on both kernels'
	@echo '  make bench         count the instructions of a hit, and of other ways to stop'
	@echo 'publish'
	@echo '  make series-check  check a series like an integrator, on each point release'
	@echo '  make kabi          compare symbol CRCs and struct layouts of both kernels'
	@echo '  make dist          write dist/linux-BASE.mbox with a cover letter; for 7.3,'
	@echo '                     also dist/upstream'
	@echo '  make labs          write dist/labs for LAVA, kselftest, autopkgtest, KCIDB'
	@echo '  make results       record measurements in patches/results.json, and write all'
	@echo '                     pages from it'
	@echo '  make fetch         fetch the source of a kernel, and print its path'
	@echo '  make version       print the version'
	@echo '  make clean         remove build/'

verify:
	@scripts/verify $(call arg,$(BASE))

stock:
	@scripts/prove/stock $(call arg,$(KERNEL))

# verify leaves out gdb.*, which takes minutes. On 5.10, which has no attr.sigtrap, perf_bpf_gdb passes on all packets.
matrix:
	@bases=$(or $(given),$$(/usr/bin/python3 -B scripts/lab make at-hand)) || exit; code=0; for base in $$bases; do \
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
	@scripts/prove/bench $(given)

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
