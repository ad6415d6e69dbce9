# SPDX-License-Identifier: GPL-2.0
# The front door. Each verb is a program in scripts/ that can be run alone.

BASE ?= 6.1
export VERSION KSRC BUILD ACCEL

help:
	@echo 'BPF programs that suppress every side effect of a perf overflow, on long-term kernels'
	@echo
	@echo '  make verify        build the stock and the patched kernel, boot both, print what each does'
	@echo '  make check         the tests of the project: scripts, series, and verify'
	@echo '  make series        check the series as an integrator would, on every point release'
	@echo '  make mutants       break one rule after the other; the tests named for it must fail'
	@echo '  make peers         run the tests that others wrote on both kernels'
	@echo '  make soak          boot N=100 times, with other CPUs and preemption: the same verdicts'
	@echo '  make apply         put the series on your kernel tree: make apply KSRC=/path/to/linux'
	@echo '  make selftests     build the tests and the probe against KSRC, into build/selftests'
	@echo '  make probe         what does the kernel that runs here suppress?'
	@echo '  make fetch         fetch the source of the kernel, print where it is'
	@echo '  make clean         remove build/'
	@echo
	@echo '  BASE=6.1           the long-term kernel that the series is for (the default)'
	@echo '  VERSION=6.1.190-1  another point release than the newest'
	@echo '  KSRC=/path         your own tree instead (verify works on a copy)'
	@echo '  ACCEL=tcg          or kvm, auto: what QEMU runs on (auto: KVM if a guest boots on it)'

verify:
	@scripts/verify $(BASE)

check:
	@scripts/check

series:
	@scripts/deps
	@scripts/series-check $(BASE)

mutants:
	@scripts/deps
	@scripts/mutants $(BASE)

peers:
	@scripts/peers $(BASE)

soak:
	@scripts/soak $(BASE) $(N)

apply:
	@[ -n "$(KSRC)" ] || { echo 'make apply: say which tree: make apply KSRC=/path/to/linux' >&2; exit 2; }
	@scripts/apply patches/linux-$(BASE) "$(KSRC)"

fetch:
	@scripts/fetch $(BASE) $(VERSION)

selftests:
	@scripts/deps
	@$(MAKE) --no-print-directory -C selftests OUT=$(or $(BUILD),$(CURDIR)/build)/selftests \
		KSRC=$(or $(abspath $(KSRC)),$$(scripts/fetch $(BASE) $(VERSION)))

probe: selftests
	@$(or $(BUILD),build)/selftests/perf_bpf_probe

clean:
	rm -rf $(or $(BUILD),build)

.PHONY: help verify check series mutants peers soak apply fetch selftests probe clean
