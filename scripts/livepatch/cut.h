// SPDX-License-Identifier: GPL-2.0
// The passes of cut, in their order: File::place(), Cut::check_data(), select(), check_kernel(),
// write().
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include "cut-code.h"
#include "kernel.h"

struct Plan {
	std::set<std::string> objects, copy, keep, without, ignore;

	explicit Plan(const std::string &path);
	// Whether it says of each source that differs in @patched from @stock what becomes of that.
	void check_sources(const std::string &stock, const std::string &patched) const;
};

// What becomes of a function of PATCHED.
enum class Fate {
	KERNELS, // it stays the kernel's
	REPLACED,
	COPIED,
	ADDED,
};

// A file, and where it is in the kernel.
struct File {
	std::string name;
	Code plain, stock, patched;
	std::map<size_t, uint64_t> base; // of the sections of plain
	std::map<std::string, uint64_t> external; // what plain wants from other files
	std::map<size_t, Fate> fates; // by symbol of patched, the first of its function
	std::set<std::string> changed; // functions

	File(const std::string &name, const std::string &plain, const std::string &stock,
	     const std::string &patched)
		: name(name)
		, plain(plain + '/' + name)
		, stock(stock + '/' + name)
		, patched(patched + '/' + name)
	{
	}

	// Finds the sections of plain in the kernel, and compares them.
	void place(const Kernel &kernel);
	// Compares plain and stock.
	void check_stock() const;
	// Of a symbol of plain, and of one that it wants from other files.
	std::optional<uint64_t> address(size_t symbol) const;
	std::optional<uint64_t> address(const std::string &symbol) const;
	// The symbol of plain that one of patched is; none if it is new, or each has its own.
	std::optional<size_t> theirs(size_t symbol) const;

	Fate fate(size_t symbol) const
	{
		auto it = fates.find(patched.main_part(symbol));
		return it == fates.end() ? Fate::KERNELS : it->second;
	}
	std::vector<std::string> with(Fate fate) const; // names, in order

private:
	std::string name_at(size_t section, uint64_t offset) const;
	void find_alternatives(const Kernel &kernel);
	void compare_merged(size_t section, const Relocation &r, uint64_t target,
			    const Kernel &kernel) const;
	void compare(size_t section, const Kernel &kernel) const;
	void follow(size_t section, const Kernel &kernel);
};

// What a name means depends on the file. A function or variable is a symbol of one file's PATCHED:
// that which defines it, if it is one of the plan's, and of a function the symbol of its first
// part.
struct Id {
	File *file;
	size_t symbol;

	bool operator==(const Id &) const = default;
	const Symbol &get() const { return file->patched.symbol(symbol); }
	const std::string &name() const { return get().name; }
	bool local() const { return get().bind == STB_LOCAL; }
	bool function() const
	{
		return file->patched.functions.contains(name()) && file->patched.defines(symbol);
	}
	bool is_new() const // function
	{
		return !file->stock.functions.contains(name());
	}
	Fate fate() const { return file->fate(symbol); }
};

inline Id function_of(File &file, const std::string &name)
{
	return { &file, file.patched.functions.at(name)[0] };
}

// What the kernel has of something.
struct Home {
	std::string name;
	uint64_t address;
	bool local; // to a file: what is exported by this name is another
};

class Cut {
	const Kernel &kernel;
	const Plan &plan;
	const std::map<std::string, bool> &exported; // whether for all modules
	std::vector<File> &files;
	std::map<std::string, Id> globals; // what the files define for others

	friend class Writer;

public:
	Cut(const Kernel &kernel, const Plan &plan, const std::map<std::string, bool> &exported,
	    std::vector<File> &files);

	void check_data() const;
	void select();
	void check_kernel(const std::vector<Kernel_symbol> &symbols) const;
	Object write(File &file) const;
	unsigned position(const Id &id) const;

private:
	void check_variables(const File &file) const;
	Id resolve(File &file, size_t symbol) const;
	Home home(const Id &id) const;
	static bool is(const File &file, const Symbol &symbol, const Id &id);
	void change(const Id &function);
	void change_callers(const Id &function);
	void check_pointers(const File &file, const Id &function) const;
	void add(const Id &function);
	void add_referenced(const Id &function);
};
