// SPDX-License-Identifier: GPL-2.0
// Sections that the kernel's build adds to an object, other than functions and variables.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include "elf.h"

// Sections with an entry for each of many places in the code, with so many @relocations, the same
// number of bytes each: @size, if that is what tells kernels apart. The first relocation of an
// entry says which place; what is @masked, as a line number, does not make a difference. With
// @prefix the name goes on.
struct Table {
	std::string_view name;
	size_t relocations, masked_at = 0, masked = 0, size = 0;
	bool prefix = false;
};
constexpr Table TABLES[] = {
	{ "__jump_table", 3 },
	{ "__bug_table", 2, 8, 2, 12 },
	{ "__bug_table", 3, 12, 2, 16 }, // with the format of a WARN()
	{ "__ex_table", 2 },
	{ "__mcount_loc", 1 },
	{ ".altinstructions", 2 },
	{ ".smp_locks", 1 },
	{ ".parainstructions", 1 },
	{ ".call_sites", 1 },
	{ ".return_sites", 1 },
	{ ".retpoline_sites", 1 },
	{ ".static_call_sites", 2 },
	{ ".orc_unwind_ip", 1 },
	// What objtool goes by, where it has not been at the object yet.
	{ ".discard.reachable", 1 },
	{ ".discard.unreachable", 1 },
	{ ".discard.retpoline_safe", 1 },
	{ ".discard.ignore_alts", 1 },
	{ ".discard.instr_begin", 1 },
	{ ".discard.instr_end", 1 },
	{ ".discard.annotate_insn", 1 },
	// runtime_ptr_NAME and similar: constants in the code that the kernel patches during boot.
	{ .name = "runtime_", .relocations = 1, .prefix = true },
};
constexpr std::string_view ALTERNATIVES = ".altinstructions",
			   REPLACEMENTS = ".altinstr_replacement", MCOUNT = "__mcount_loc",
			   ORC_IP = ".orc_unwind_ip", ORC = ".orc_unwind", JUMPS = "__jump_table",
			   DISCARDED = ".discard";
constexpr size_t ORC_ENTRY = 6; // of .orc_unwind, one for each of .orc_unwind_ip

inline const Table *table_of(const Section &section)
{
	const Table *table = std::ranges::find_if(TABLES, [&](const Table &t) {
		return (t.prefix ? section.name.starts_with(t.name) : section.name == t.name) &&
		       (!t.size || section.bytes.size() * t.relocations ==
					   section.relocations.size() * t.size);
	});
	return table == std::end(TABLES) ? nullptr : table;
}

// Where data has no other meaning than the variables that are in it. What is in other sections the
// kernel's link gathers from all files, for the kernel to go through.
constexpr std::string_view DATA[] = { ".data",	      ".bss",	    ".rodata",	".init.data",
				      ".init.rodata", ".exit.data", ".ref.data" };

inline bool is_gathered(const Section &section)
{
	return std::ranges::none_of(
		DATA, [&](std::string_view name) { return section.name.starts_with(name); });
}

// The kernel's build fills these in once it is linked (resolve_btfids).
constexpr std::string_view BTF_IDS = ".BTF_ids";
// Lists the padding before each function. The padding has no symbol, and the list is not used.
constexpr std::string_view ROOM = "__patchable_function_entries";

// Static variables of a function, or tables that the compiler made of its code. It may have its
// own.
constexpr std::string_view OWN[] = { "__func__", "__already_done",	"__warned",
				     "__key",	 "__PRETTY_FUNCTION__", "CSWTCH" };

inline bool is_own(std::string_view unnumbered)
{
	return std::ranges::find(OWN, unnumbered) != std::end(OWN);
}

// Data for UBSAN's reports. Its symbols are numbered, so it can differ like the variables above.
constexpr std::string_view UBSAN = ".data..Lubsan_";

inline bool is_ubsan(const Section &section)
{
	return section.name.starts_with(UBSAN);
}

// Data that is compared for itself: not code, nor what belongs to the code that refers to it.
inline bool is_data(const Section &section)
{
	return section.flags & SHF_ALLOC && !section.code() && !section.merged() &&
	       !table_of(section) && !is_ubsan(section) && section.name != ORC &&
	       section.name != ROOM && !section.name.starts_with(DISCARDED);
}
