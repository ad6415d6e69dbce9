/* SPDX-License-Identifier: GPL-2.0 */
/* Differences between the architectures, so that the tests need no #ifdef; see also bench/. */
#pragma once

#include <sys/user.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)

constexpr size_t EXECUTE_LENGTH = sizeof(long); /* attr.bp_len, arch/x86/kernel/hw_breakpoint.c */
constexpr size_t INSTRUCTION_ALIGNMENT = 1;
constexpr bool STOPS_BEFORE_ACCESS = false; /* a watchpoint hits after the access */
/* The signal frame of a hit has RF set, so a task that returns from it does not hit again. */
constexpr bool SIGRETURN_SKIPS_HIT = true;
constexpr bool WATCHES_KERNEL = true; /* the kernel's accesses to user memory hit watchpoints */
constexpr bool TASK_BREAKPOINTS_IN_KERNEL = true; /* a task's event may be on a kernel function */
/*
 * Whether a breakpoint right after an instruction that the kernel emulates is hit. On x86 it is
 * not: the kernel advances ip and leaves RF set.
 */
constexpr bool HITS_AFTER_EMULATED = false;
constexpr bool DEFERS_CALLCHAINS = true; /* the kernel has UNWIND_USER, see arch/Kconfig */
constexpr uint64_t FIRST_ARGUMENT = 1 << 5; /* for attr.sample_regs_user: PERF_REG_X86_DI */
#define SYSCALL_SYMBOL(name) "__x64_sys_" name /* symbol of a system call in the kernel */

/* In assembly: stores the second argument at the address in the first one. */
#define ASM_STORE "mov %esi, (%rdi)\n"
/* Loads the registers for syscall(2) with three arguments. ASM_SYSCALL must follow. */
#define ASM_SET_UP_SYSCALL "mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
#define ASM_SYSCALL "syscall\n"
/* An instruction that the kernel emulates if the CPU has UMIP, arch/x86/kernel/umip.c. */
#define ASM_EMULATED "smsw %eax\n"
#define ASM_JUMP "jmp "

/*
 * Indices of the pc and of the flags in NT_PRSTATUS of a 32-bit task, and its size, in 32-bit
 * words: asm/user_32.h
 */
constexpr size_t COMPAT_PC = 12, COMPAT_FLAGS = 14;
constexpr size_t COMPAT_REGISTERS = 17;

/* The flag that the kernel sets to single-step a task: TF. */
constexpr uint64_t STEP_FLAG = 1 << 8;

inline uint64_t flags_of(const user_regs_struct &registers)
{
	return registers.eflags;
}

inline auto &pc_of(user_regs_struct &registers)
{
	return registers.rip;
}

inline auto &pc_of(ucontext_t &context)
{
	return context.uc_mcontext.gregs[REG_RIP];
}

/* RF suppresses a second hit of the same instruction. sigreturn() restores it from the frame. */
constexpr uint64_t HIT_FLAGS = 1 << 16;
constexpr bool SIGRETURN_RESTORES_HIT_FLAGS = true;

inline auto &flags_of(ucontext_t &context)
{
	return context.uc_mcontext.gregs[REG_EFL];
}

template <typename Context> inline auto &general_registers(Context &context)
{
	return context.uc_mcontext.gregs;
}

inline std::array<uint64_t, 4> first_arguments(const user_regs_struct &registers)
{
	return { registers.rdi, registers.rsi, registers.rdx, registers.rcx };
}

#elif defined(__aarch64__)

constexpr size_t EXECUTE_LENGTH = 4;
constexpr size_t INSTRUCTION_ALIGNMENT = 4;
constexpr bool STOPS_BEFORE_ACCESS = true;
constexpr bool SIGRETURN_SKIPS_HIT = false; /* only with the series */
constexpr bool WATCHES_KERNEL = false; /* see watchpoint_report() in arch/arm64/kernel */
constexpr bool TASK_BREAKPOINTS_IN_KERNEL = false; /* see hw_breakpoint_arch_parse() there */
constexpr bool HITS_AFTER_EMULATED = true;
constexpr bool DEFERS_CALLCHAINS = false;
constexpr uint64_t FIRST_ARGUMENT = 1; /* PERF_REG_ARM64_X0 */
#define SYSCALL_SYMBOL(name) "__arm64_sys_" name

#define ASM_STORE "str w1, [x0]\n"
#define ASM_SET_UP_SYSCALL "mov x8, x0\n mov x0, x1\n mov x1, x2\n mov x2, x3\n"
#define ASM_SYSCALL "svc #0\n"
/* The kernel emulates this if it shows HWCAP_CPUID, arch/arm64/kernel/cpufeature.c. */
#define ASM_EMULATED "mrs x0, midr_el1\n"
#define ASM_JUMP "b "

constexpr size_t COMPAT_PC = 15, COMPAT_FLAGS = 16;
constexpr size_t COMPAT_REGISTERS = 18;

/* The flag that the kernel sets to single-step a task: SS. In CPSR this bit is DIT. */
constexpr uint64_t STEP_FLAG = 1 << 21;

inline uint64_t flags_of(const user_regs_struct &registers)
{
	return registers.pstate;
}

inline auto &pc_of(user_regs_struct &registers)
{
	return registers.pc;
}

inline auto &pc_of(ucontext_t &context)
{
	return context.uc_mcontext.pc;
}

/* SS and IL: sigreturn() restores neither from the frame. */
constexpr uint64_t HIT_FLAGS = 1 << 21 | 1 << 20;
constexpr bool SIGRETURN_RESTORES_HIT_FLAGS = false;

inline auto &flags_of(ucontext_t &context)
{
	return context.uc_mcontext.pstate;
}

template <typename Context> inline auto &general_registers(Context &context)
{
	return context.uc_mcontext.regs;
}

inline std::array<uint64_t, 4> first_arguments(const user_regs_struct &registers)
{
	return { registers.regs[0], registers.regs[1], registers.regs[2], registers.regs[3] };
}

#else
#error "lib/arch.h does not support this architecture"
#endif
