// SPDX-License-Identifier: GPL-2.0
// The passes of cut, in their order: File::place(), File::check_stock(), Cut::check_data(),
// select(), check_jumps(), check_kernel(), write().
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include "cut-code.h"
#include "kernel.h"

struct Plan {
	std::set<std::string> objects, copy, keep, atomic, without, ignore;

	explicit Plan(const std::string &path);
	// Checks that the plan has each source file that differs between @stock and @patched, as
	// "object" or "ignore".
	void check_sources(const std::string &stock, const std::string &patched) const;
};

// How the live patch treats a function of PATCHED.
enum class Action {
	KEEP, // the kernel's function stays as it is
	REPLACE, // ftrace redirects calls of the kernel's function to the module's
	COPY, // only functions of the module call the module's copy
	ADD, // the kernel has no such function
};

// The four compilations of a file, and its addresses in the kernel.
struct File {
	std::string name;
	Code plain, aligned, stock, patched;
	std::map<size_t, uint64_t> base; // addresses by section of plain
	// Addresses of the symbols that plain leaves undefined or defines as weak.
	std::map<std::string, uint64_t> external;
	std::map<size_t, Action> actions; // by symbol of patched: that of a function's main part
	std::set<std::string> changed; // functions that differ between stock and patched

	File(const std::string &name, const std::string &plain, const std::string &aligned,
	     const std::string &stock, const std::string &patched)
		: name(name)
		, plain(plain + '/' + name)
		, aligned(aligned + '/' + name)
		, stock(stock + '/' + name)
		, patched(patched + '/' + name)
	{
	}

	// Finds the sections of plain in the kernel, and checks that they are the same there.
	void place(const Kernel &kernel);
	// Checks that stock has the same functions as plain, but for the alignment of loops.
	void check_stock() const;
	// The kernel address of a symbol of plain: by index, or by name if it is in @external.
	std::optional<uint64_t> address(size_t symbol) const;
	std::optional<uint64_t> address(const std::string &symbol) const;
	// The symbol of plain that corresponds to @symbol of patched. None if @symbol is new, or if
	// the module has its own copy, see is_private().
	std::optional<size_t> counterpart(size_t symbol) const;

	Action action(size_t symbol) const
	{
		auto it = actions.find(patched.main_part(symbol));
		return it == actions.end() ? Action::KEEP : it->second;
	}
	std::vector<std::string> functions_with(Action action) const; // names, in order

private:
	std::string name_at(size_t section, uint64_t offset) const;
	void find_alternatives(const Kernel &kernel);
	bool is_ubsan_path(const std::string &ours, const std::string &theirs) const;
	void compare_merged(size_t section, const Relocation &r, uint64_t target,
			    const Kernel &kernel) const;
	void compare(size_t section, const Kernel &kernel) const;
	void follow(size_t section, const Kernel &kernel);
};

// A function or variable. Two files can have different symbols with the same name, so it is
// identified by a file and a symbol of that file's PATCHED. If a file of the plan defines it, that
// is the file. A function is identified by the symbol of its main part.
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
	bool is_new() const // for functions only
	{
		return !file->stock.functions.contains(name());
	}
	Action action() const { return file->action(symbol); }
};

inline Id function_of(File &file, const std::string &name)
{
	return { &file, file.patched.functions.at(name)[0] };
}

// The kernel's symbol for a function or variable.
struct Location {
	std::string name;
	uint64_t address;
	bool local; // static: an exported symbol with this name is a different one
};

class Cut {
	const Kernel &kernel;
	const Plan &plan;
	// By name; false if only modules that import a namespace can use the symbol.
	const std::map<std::string, bool> &exported;
	std::vector<File> &files;
	std::map<std::string, Id> globals; // what the files define and is not static

	friend class Writer;

public:
	Cut(const Kernel &kernel, const Plan &plan, const std::map<std::string, bool> &exported,
	    std::vector<File> &files);

	void check_data() const;
	void select();
	void check_jumps() const;
	void check_kernel(const std::vector<Kernel_symbol> &symbols) const;
	Object write(File &file) const;
	unsigned position(const Id &id) const;

private:
	void check_variables(const File &file) const;
	void check_jumps(const Id &function, size_t part) const;
	Id resolve(File &file, size_t symbol) const;
	Location locate(const Id &id) const;
	static bool is(const File &file, const Symbol &symbol, const Id &id);
	void change(const Id &function);
	void change_callers(const Id &function);
	void check_pointers(const File &file, const Id &function) const;
	void add(const Id &function);
	void add_referenced(const Id &function);
};
