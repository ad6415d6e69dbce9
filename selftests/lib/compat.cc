// SPDX-License-Identifier: GPL-2.0
#include "lib/compat.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lib/child.h"
#include "lib/fail.h"
#include "lib/hit.h"

/*
 * The program is position-independent. Its handler is SA_SIGINFO | SA_RESTORER, so that the kernel
 * builds the same signal frame as for most programs, and it returns by rt_sigreturn.
 */
#define SIG "10"
#define TIMES "20"
static_assert(COMPAT_SIGNAL == 10 && HITS == 20, "the assembly below has these numbers");

extern "C" const uint8_t compat_begin[], compat_end[], compat_word[];

#if defined(__x86_64__)

constexpr uint16_t MACHINE = EM_386;

extern "C" const uint8_t compat_i386_at[], compat_i386_next[], compat_i386_after[];

asm(".pushsection .rodata\n"
    ".globl compat_begin, compat_end, compat_i386_at, compat_i386_next, compat_i386_after\n"
    ".globl compat_word\n"
    ".code32\n"
    ".balign 4\n"
    "compat_begin:\n"
    "call 1f\n"
    "1: pop %ebp\n"
    "pushl $0\n"
    "pushl $0\n"
    "lea restorer-1b(%ebp), %eax\n"
    "push %eax\n"
    "pushl $0x04000004\n"
    "lea handler-1b(%ebp), %eax\n"
    "push %eax\n"
    "mov $174, %eax\n" /* rt_sigaction */
    "mov $" SIG ", %ebx\n"
    "mov %esp, %ecx\n"
    "xor %edx, %edx\n"
    "mov $8, %esi\n"
    "int $0x80\n"
    "mov $" TIMES ", %edi\n"
    "lea compat_word-1b(%ebp), %esi\n"
    "compat_i386_at: mov %edi, (%esi)\n"
    "compat_i386_next: mov %edi, 4(%esi)\n"
    "compat_i386_after: dec %edi\n"
    "jnz compat_i386_at\n"
    "mov caught-1b(%ebp), %ebx\n"
    "mov $1, %eax\n" /* exit */
    "int $0x80\n"
    "handler: call 2f\n"
    "2: pop %eax\n"
    "incl caught-2b(%eax)\n"
    "ret\n"
    "restorer: mov $173, %eax\n" /* rt_sigreturn */
    "int $0x80\n"
    "caught: .long 0\n"
    ".balign 4\n"
    "compat_word: .long 0, 0\n"
    "compat_end:\n"
    ".code64\n"
    ".popsection\n");

#elif defined(__aarch64__)

constexpr uint16_t MACHINE = EM_ARM;

extern "C" const uint8_t compat_entry_thumb[], compat_arm_at[], compat_arm_next[],
	compat_arm_after[], compat_thumb_at[], compat_thumb_next[], compat_thumb_after[];

/* The A64 assembler cannot assemble A32; clang has generated these words. */
asm(".pushsection .rodata\n"
    ".globl compat_begin, compat_end, compat_entry_thumb, compat_arm_at, compat_arm_next\n"
    ".globl compat_arm_after, compat_thumb_at, compat_thumb_next, compat_thumb_after\n"
    ".globl compat_word\n"
    ".balign 4\n"
    "compat_begin:\n"
    ".word 0xe28f5094\n" /* adr r5, compat_arm_at */
    ".word 0xea000001\n" /* b common */
    "compat_entry_thumb:\n"
    ".word 0xe28f50a0\n" /* adr r5, compat_thumb_at */
    ".word 0xe3855001\n" /* orr r5, r5, #1 */
    /* common: */
    ".word 0xe24dd020\n" /* sub sp, sp, #32 */
    ".word 0xe28f0058\n" /* adr r0, handler */
    ".word 0xe58d0000\n" /* str r0, [sp] */
    ".word 0xe3a00301\n" /* mov r0, #0x04000000 */
    ".word 0xe3800004\n" /* orr r0, r0, #4 */
    ".word 0xe58d0004\n" /* str r0, [sp, #4] */
    ".word 0xe28f0058\n" /* adr r0, restorer */
    ".word 0xe58d0008\n" /* str r0, [sp, #8] */
    ".word 0xe3a00000\n" /* mov r0, #0 */
    ".word 0xe58d000c\n" /* str r0, [sp, #12] */
    ".word 0xe58d0010\n" /* str r0, [sp, #16] */
    ".word 0xe3a00000 + " SIG "\n" /* mov r0, #SIG */
    ".word 0xe1a0100d\n" /* mov r1, sp */
    ".word 0xe3a02000\n" /* mov r2, #0 */
    ".word 0xe3a03008\n" /* mov r3, #8 */
    ".word 0xe3a070ae\n" /* mov r7, #174, rt_sigaction */
    ".word 0xef000000\n" /* svc #0 */
    ".word 0xe3a04000 + " TIMES "\n" /* mov r4, #TIMES */
    ".word 0xe28f6034\n" /* adr r6, compat_word */
    ".word 0xe28fe000\n" /* adr lr, done */
    ".word 0xe12fff15\n" /* bx r5 */
    /* done: */
    ".word 0xe28f0024\n" /* adr r0, caught */
    ".word 0xe5900000\n" /* ldr r0, [r0] */
    ".word 0xe3a07001\n" /* mov r7, #1, exit */
    ".word 0xef000000\n" /* svc #0 */
    /* handler: */
    ".word 0xe28f0014\n" /* adr r0, caught */
    ".word 0xe5901000\n" /* ldr r1, [r0] */
    ".word 0xe2811001\n" /* add r1, r1, #1 */
    ".word 0xe5801000\n" /* str r1, [r0] */
    ".word 0xe12fff1e\n" /* bx lr */
    /* restorer: */
    ".word 0xe3a070ad\n" /* mov r7, #173, rt_sigreturn */
    ".word 0xef000000\n" /* svc #0 */
    ".word 0\n" /* caught */
    "compat_word: .word 0, 0\n"
    "compat_arm_at: .word 0xe5864000\n" /* str r4, [r6] */
    "compat_arm_next: .word 0xe5864004\n" /* str r4, [r6, #4] */
    "compat_arm_after: .word 0xe2544001\n" /* subs r4, r4, #1 */
    ".word 0x1afffffb\n" /* bne compat_arm_at */
    ".word 0xe12fff1e\n" /* bx lr */
    "compat_thumb_at: .hword 0x6034\n" /* str r4, [r6] */
    "compat_thumb_next: .hword 0x6074\n" /* str r4, [r6, #4] */
    "compat_thumb_after: .hword 0x3c01\n" /* subs r4, #1 */
    ".hword 0xd1fb\n" /* bne compat_thumb_at */
    ".hword 0x4770\n" /* bx lr */
    "compat_end:\n"
    ".popsection\n");

#endif

namespace {

constexpr uint32_t BASE = 0x10000; /* above vm.mmap_min_addr */

struct Headers {
	Elf32_Ehdr file;
	Elf32_Phdr segment;
};

uint64_t address(const uint8_t *label)
{
	return BASE + sizeof(Headers) + (label - compat_begin);
}

} // namespace

std::span<const InstructionSet> instruction_sets()
{
	static const InstructionSet sets[] = {
#if defined(__x86_64__)
		{ "i386", sizeof(long), address(compat_begin), address(compat_i386_at),
		  address(compat_i386_next), address(compat_i386_after), address(compat_word) },
#elif defined(__aarch64__)
		{ "ARM", 4, address(compat_begin), address(compat_arm_at), address(compat_arm_next),
		  address(compat_arm_after), address(compat_word) },
		{ "Thumb", 2, address(compat_entry_thumb), address(compat_thumb_at),
		  address(compat_thumb_next), address(compat_thumb_after), address(compat_word) },
#endif
	};

	return sets;
}

int exec_compat(const InstructionSet &set)
{
	const size_t size = compat_end - compat_begin;
	Headers headers = {};
	int file = memfd_create("compat", MFD_CLOEXEC);
	char name[] = "compat", *argv[] = { name, nullptr };

	headers.file = { { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS32, ELFDATA2LSB,
			   EV_CURRENT },
			 ET_EXEC,
			 MACHINE,
			 EV_CURRENT,
			 uint32_t(set.entry),
			 offsetof(Headers, segment),
			 0,
			 MACHINE == EM_ARM ? EF_ARM_EABI_VER5 : 0,
			 sizeof(Elf32_Ehdr),
			 sizeof(Elf32_Phdr),
			 1,
			 0,
			 0,
			 0 };
	/* Writable, because the program has its counter in the same segment. */
	headers.segment = { PT_LOAD,
			    0,
			    BASE,
			    BASE,
			    uint32_t(sizeof(headers) + size),
			    uint32_t(sizeof(headers) + size),
			    PF_R | PF_W | PF_X,
			    4096 };
	if (file < 0 || write(file, &headers, sizeof(headers)) != sizeof(headers) ||
	    write(file, compat_begin, size) != ssize_t(size))
		return errno;
	fexecve(file, argv, argv + 1);
	return errno;
}

bool executes(const InstructionSet &set)
{
	Child child([&set] { return exec_compat(set); });
	const int status = child.wait();

	if (status && status != W_EXITCODE(ENOEXEC, 0))
		setup_failed("exec of a 32-bit program", WEXITSTATUS(status));
	return !status;
}
