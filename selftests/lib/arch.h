/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the architectures, for the tests, which are the same; see also ../bench. */
#pragma once

#include <sys/user.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)

constexpr size_t EXECUTE_LENGTH = sizeof(long); /* attr.bp_len, arch/x86/kernel/hw_breakpoint.c */
constexpr size_t INSTRUCTION_ALIGNMENT = 1;
constexpr bool STOPS_BEFORE_ACCESS = false; /* where a watchpoint hits: before, or behind it */
constexpr bool SAVES_HIT = true; /* the frame of a signal, in RF: what has hit does not hit again */
constexpr bool WATCHES_KERNEL = true; /* whether what the kernel does to user memory hits */
constexpr bool HITS_BEHIND_EMULATED = false; /* the kernel moves ip on, and leaves RF set */
constexpr bool DEFERS_CALLCHAINS = true; /* whether it has an UNWIND_USER, arch/Kconfig */
constexpr uint64_t FIRST_ARGUMENT = 1 << 5; /* of attr.sample_regs_user: PERF_REG_X86_DI */
#define SYSCALL_SYMBOL(name) "__x64_sys_" name /* of a system call in the kernel */

/* In assembly: the first argument is an address, and gets what the second is. */
#define ASM_STORE "mov %esi, (%rdi)\n"
/* Of syscall(2) with three arguments all but the instruction, ASM_SYSCALL, which is to follow. */
#define ASM_SET_UP_SYSCALL "mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
#define ASM_SYSCALL "syscall\n"
/* What the kernel emulates where the CPU has UMIP, arch/x86/kernel/umip.c. */
#define ASM_EMULATED "smsw %eax\n"
#define ASM_JUMP "jmp "

/* 32-bit tasks: the word of NT_PRSTATUS that is pc, eip in arch/x86/include/asm/user_32.h */
constexpr size_t COMPAT_PC = 12;

inline auto &pc_of(user_regs_struct &registers)
{
	return registers.rip;
}

inline auto &pc_of(ucontext_t &context)
{
	return context.uc_mcontext.gregs[REG_RIP];
}

/* What says in the frame of a signal that an instruction has hit: RF. */
constexpr uint64_t HIT_IN_FRAME = 1 << 16;

inline auto &flags_of(ucontext_t &context)
{
	return context.uc_mcontext.gregs[REG_EFL];
}

inline const auto &general_registers(const ucontext_t &context)
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
constexpr bool SAVES_HIT = false; /* but for a kernel that does, as with the series */
constexpr bool WATCHES_KERNEL = false; /* watchpoint_report() in arch/arm64/kernel */
constexpr bool HITS_BEHIND_EMULATED = true;
constexpr bool DEFERS_CALLCHAINS = false;
constexpr uint64_t FIRST_ARGUMENT = 1; /* PERF_REG_ARM64_X0 */
#define SYSCALL_SYMBOL(name) "__arm64_sys_" name

#define ASM_STORE "str w1, [x0]\n"
#define ASM_SET_UP_SYSCALL "mov x8, x0\n mov x0, x1\n mov x1, x2\n mov x2, x3\n"
#define ASM_SYSCALL "svc #0\n"
/* Where it shows HWCAP_CPUID, arch/arm64/kernel/cpufeature.c. */
#define ASM_EMULATED "mrs x0, midr_el1\n"
#define ASM_JUMP "b "

constexpr size_t COMPAT_PC = 15;

inline auto &pc_of(user_regs_struct &registers)
{
	return registers.pc;
}

inline auto &pc_of(ucontext_t &context)
{
	return context.uc_mcontext.pc;
}

/* SS, and IL for a watchpoint: with the series. */
constexpr uint64_t HIT_IN_FRAME = 1 << 21 | 1 << 20;

inline auto &flags_of(ucontext_t &context)
{
	return context.uc_mcontext.pstate;
}

inline const auto &general_registers(const ucontext_t &context)
{
	return context.uc_mcontext.regs;
}

inline std::array<uint64_t, 4> first_arguments(const user_regs_struct &registers)
{
	return { registers.regs[0], registers.regs[1], registers.regs[2], registers.regs[3] };
}

#else
#error "lib/arch.h does not know this architecture"
#endif
