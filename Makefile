# SPDX-License-Identifier: GPL-2.0
# The front door. Each verb is a program in scripts/ that can be run alone.

BASE ?= 6.1
BASES = $(shell /usr/bin/python3 -B scripts/lab make bases)
# Before what is of x86 alone.
X86 = $(if $(filter-out x86 x86_64,$(ARCH)),:)
export VERSION KSRC BUILD ACCEL

help:
	@echo 'BPF programs that suppress every side effect of a perf overflow, on long-term kernels'
	@echo
	@echo 'use it'
	@echo '  make verify        build the stock and the patched kernel, boot both, print what each does'
	@echo '  make probe         what does the kernel that runs here suppress?'
	@echo '  make apply         put the series on your kernel tree: make apply KSRC=/path/to/linux'
	@echo '  make livepatch     the same as a module for the kernel that runs, or KERNEL=6.1.0-56-amd64'
	@echo '  make livepatch-deb dist/*.deb, which builds that for each kernel to come, by dkms'
	@echo '  make verify-live   boot that kernel; probe and suite before, with and after the live patch'
	@echo '  make selftests     build the tests and the probe against KSRC, into build/selftests'
	@echo 'prove it'
	@echo '  make try           TEST="effects.*": rebuild what changed, run these on the patched kernel'
	@echo '  make stock         boot Debian'"'"'s kernels as they are shipped, and write what works where'
	@echo '  make matrix        verify every base, its module ABI and prices; print the contract by base'
	@echo '  make check         the tests of the project: scripts, series, and verify'
	@echo '  make mutants       break one rule after the other; the tests named for it must fail'
	@echo '  make prefixes      build and boot with the first patch, the first two, and so on'
	@echo '  make debug         kernels that look for memory errors, wrong locking and data races'
	@echo '  make stress        hits under all that may happen beside them, for MINUTES=2: what differs?'
	@echo '  make fuzz          CALLS=n bad calls on filtered events; nothing may break or stay behind'
	@echo '  make soak          boot N=100 times, with other CPUs and preemption: the same verdicts'
	@echo '  make faults        let a guest try to hurt its host, or to forge its verdict'
	@echo '  make peers         run the tests that others wrote on both kernels'
	@echo 'ship it'
	@echo '  make series-check  check the series as an integrator would, on every point release'
	@echo '  make kabi          does a module of the stock kernel load on the patched one?'
	@echo '  make dist          dist/linux-BASE.mbox for git am, selftests included, and a cover letter;'
	@echo '                     of 7.3 also what goes to whom upstream, in dist/upstream'
	@echo '  make labs          dist/labs for other schedulers of tests: LAVA, kselftest, autopkgtest, KCIDB'
	@echo 'measure it'
	@echo '  make bench         what a hit costs, against every other way to stop at it, of what is built'
	@echo
	@echo '  BASE=6.1           the kernel that the series is for: $(BASES)'
	@echo '  VERSION=6.1.190-1  another point release than the newest'
	@echo '  KERNEL=NAME        as uname -r has it, for livepatch and stock; KEY= and CERT= sign the module'
	@echo '  IMAGE=/path        another kernel than that of the series, for fuzz'
	@echo '  KSRC=/path         your own tree instead (apply writes to it; what builds a kernel copies it)'
	@echo '  ARCH=arm64         another architecture than x86, for what boots kernels and is not of x86 alone'
	@echo '  ACCEL=tcg          or kvm, auto: what QEMU runs on (auto: KVM if a guest boots on it)'
	@echo '  make fetch prints where the source of the kernel is; make clean removes build/'

verify:
	@scripts/verify $(BASE)

stock:
	@scripts/stock $(KERNEL)

matrix:
	@bases=$$(/usr/bin/python3 -B scripts/lab make at-hand) || exit; code=0; for base in $$bases; do \
		scripts/verify $$base || code=1; $(X86) scripts/kabi $$base || code=1; \
		$(X86) scripts/bench --check $$base || code=1; done; \
		$(X86) scripts/livepatch/verify || code=1; \
		scripts/matrix && exit $$code

check:
	@scripts/check

series-check:
	@scripts/deps --for check
	@scripts/series-check --full $(BASE)

prefixes:
	@scripts/deps
	@scripts/prefixes $(BASE)

dist:
	@scripts/dist $(BASE)

labs:
	@scripts/labs

try:
	@scripts/try $(BASE) $(foreach test,$(TEST),'$(test)')

mutants:
	@scripts/mutants $(BASE)

debug:
	@scripts/debug $(BASE)

kabi:
	@scripts/kabi $(BASE)

peers:
	@scripts/peers $(BASE)

bench:
	@scripts/deps
	@scripts/bench

soak:
	@scripts/soak $(BASE) $(N)

faults:
	@scripts/faults $(BASE)

stress:
	@scripts/deps
	@scripts/stress $(BASE) $(MINUTES)

fuzz:
	@scripts/fuzz $(BASE) $(CALLS)

apply:
	@[ -n "$(KSRC)" ] || { echo 'make apply: say which tree: make apply KSRC=/path/to/linux' >&2; exit 2; }
	@scripts/apply patches/linux-$(BASE) "$(KSRC)"

livepatch:
	@scripts/livepatch/build $(KERNEL)

livepatch-deb:
	@scripts/livepatch/deb

verify-live:
	@scripts/livepatch/verify $(KERNEL)

fetch:
	@scripts/fetch $(BASE) $(VERSION)

selftests:
	@scripts/deps
	@$(MAKE) --no-print-directory -C selftests OUT=$(abspath $(or $(BUILD),build))/selftests \
		KSRC=$(or $(abspath $(KSRC)),$$(scripts/fetch $(BASE) $(VERSION)))

probe:
	@scripts/deps --for probe
	@$(MAKE) --no-print-directory -s -C selftests probe OUT=$(abspath $(or $(BUILD),build))/probe
	@$(or $(BUILD),build)/probe/perf_bpf_probe

clean:
	rm -rf $(or $(BUILD),build)

.PHONY: help verify stock try matrix labs check series-check prefixes dist mutants kabi peers bench soak faults debug \
	stress fuzz apply livepatch livepatch-deb verify-live fetch selftests probe clean
