// SPDX-License-Identifier: GPL-2.0
// Sections that the kernel's build adds to an object, other than functions and variables.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include "elf.h"

// A section whose entries describe places in the code. All entries have the same size and the same
// number of relocations; the first relocation is the place.
struct Table {
	std::string_view name;
	size_t relocations; // of each entry
	size_t masked_at = 0, masked = 0; // offset and size of a part that is not compared
	size_t size = 0; // of an entry, if the kernel has more than one format; otherwise 0
	bool prefix = false; // the section's name begins with @name
};
constexpr Table TABLES[] = {
	{ "__jump_table", 3 },
	{ "__bug_table", 2, 8, 2, 12 }, // the line number is not compared
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
	// Annotations for objtool, in objects that it has not processed yet.
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
constexpr size_t ORC_ENTRY = 6; // size of an entry of .orc_unwind, one for each of .orc_unwind_ip

inline const Table *table_of(const Section &section)
{
	const Table *table = std::ranges::find_if(TABLES, [&](const Table &t) {
		return (t.prefix ? section.name.starts_with(t.name) : section.name == t.name) &&
		       (!t.size || section.bytes.size() * t.relocations ==
					   section.relocations.size() * t.size);
	});
	return table == std::end(TABLES) ? nullptr : table;
}

// Sections that only contain variables. The kernel's link collects all other data sections from all
// files, as arrays that the kernel iterates over.
constexpr std::string_view DATA[] = { ".data",	      ".bss",	    ".rodata",	".init.data",
				      ".init.rodata", ".exit.data", ".ref.data" };

inline bool is_collected(const Section &section)
{
	return std::ranges::none_of(
		DATA, [&](std::string_view name) { return section.name.starts_with(name); });
}

// The kernel's build fills in this section after the link (resolve_btfids).
constexpr std::string_view BTF_IDS = ".BTF_ids";
// Lists the padding before each function. The padding has no symbol, and cut ignores the list.
constexpr std::string_view PADDING = "__patchable_function_entries";

// Static variables of functions, and tables that the compiler generates from their code. The module
// has its own copies.
constexpr std::string_view PRIVATE[] = { "__func__", "__already_done",	    "__warned",
					 "__key",    "__PRETTY_FUNCTION__", "CSWTCH" };

inline bool is_private(std::string_view unnumbered)
{
	return std::ranges::find(PRIVATE, unnumbered) != std::end(PRIVATE);
}

// Data for UBSAN's reports, with symbols that are numbered differently in each compilation. The
// module has its own copies.
constexpr std::string_view UBSAN = ".data..Lubsan_";

inline bool is_ubsan(const Section &section)
{
	return section.name.starts_with(UBSAN);
}

// Whether data is compared separately: it is neither code nor compared with the code that uses it.
inline bool is_data(const Section &section)
{
	return section.flags & SHF_ALLOC && !section.code() && !section.merged() &&
	       !table_of(section) && !is_ubsan(section) && section.name != ORC &&
	       section.name != PADDING && !section.name.starts_with(DISCARDED);
}
