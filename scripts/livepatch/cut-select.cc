// SPDX-License-Identifier: GPL-2.0
// Which functions are replaced, copied and added.
#include "cut.h"

using std::string, std::vector;

vector<string> File::with(Fate fate) const
{
	vector<string> names;
	for (auto &[name, parts] : patched.functions)
		if (this->fate(parts[0]) == fate)
			names.push_back(name);
	return names;
}

Cut::Cut(const Kernel &kernel, const Plan &plan, const std::map<string, bool> &exported,
	 vector<File> &files)
	: kernel(kernel)
	, plan(plan)
	, exported(exported)
	, files(files)
{
	for (File &file : files)
		for (size_t i = 1; i < file.patched.object.symbols.size(); i++)
			if (file.patched.symbol(i).bind != STB_LOCAL && file.patched.defines(i))
				globals.try_emplace(file.patched.symbol(i).name,
						    Id{ &file, file.patched.main_part(i) });
}

// What a symbol of @file's PATCHED is: that file's own, or another's that it sees.
Id Cut::resolve(File &file, size_t symbol) const
{
	if (!file.patched.defines(symbol))
		if (auto it = globals.find(file.patched.symbol(symbol).name); it != globals.end())
			return it->second;
	return { &file, file.patched.main_part(symbol) };
}

// Whether @symbol, of any compilation of @file, is a part of @id.
bool Cut::is(const File &file, const Symbol &symbol, const Id &id)
{
	return whole(symbol.name) == id.name() &&
	       (symbol.section == SHN_UNDEF ? !id.local() : &file == id.file);
}

Home Cut::home(const Id &id) const
{
	const File &file = *id.file;
	Home home{ id.name(), 0, id.local() };
	std::optional<uint64_t> address, global = kernel.global(home.name);
	std::optional<size_t> theirs;
	if (file.patched.defines(id.symbol))
		theirs = file.theirs(id.symbol);
	else if (!(address = file.address(home.name)))
		// The patch may take a function out of the file, and still name it.
		theirs = file.plain.find(home.name);
	if (theirs) {
		home.name = file.plain.symbol(*theirs).name;
		home.local = file.plain.symbol(*theirs).bind == STB_LOCAL;
		address = file.address(*theirs);
		if (home.local && !id.local() && global)
			die("%s: which %s is it, the static one of the file or the other?",
			    file.name.c_str(), home.name.c_str());
	}
	if (!address && !home.local)
		address = global;
	if (!address)
		die("%s: the kernel's code does not tell where %s is, and %s", file.name.c_str(),
		    home.name.c_str(),
		    home.local ? "it is static" : "the kernel has no such global symbol");
	home.address = *address;
	return home;
}

unsigned Cut::position(const Id &id) const
{
	Home home = this->home(id);
	std::optional<unsigned> position = kernel.position(home.name, home.address);
	if (!position)
		die("%s: the kernel's list of symbols has no %s at %#lx", id.file->name.c_str(),
		    home.name.c_str(), home.address);
	return *position;
}

void Cut::select()
{
	for (File &file : files)
		for (auto &[name, parts] : file.patched.functions)
			if (file.stock.functions.contains(name) &&
			    file.stock.function(name) != file.patched.function(name))
				file.changed.insert(name);
	for (File &file : files)
		for (const string &name : file.changed)
			change(function_of(file, name));

	for (File &file : files) {
		// What is global is for another file, or for the module.
		for (auto &[name, parts] : file.patched.functions)
			if (Id id{ &file, parts[0] }; id.get().bind == STB_GLOBAL && id.is_new())
				add(id);
		for (Fate fate : { Fate::REPLACED, Fate::COPIED })
			for (const string &name : file.with(fate))
				add_referenced(function_of(file, name));
	}
}

// @function is not to be as the kernel has it.
void Cut::change(const Id &function)
{
	const string &name = function.name();
	File &file = *function.file;
	if (plan.keep.contains(name) || function.fate() != Fate::KERNELS || function.is_new())
		return;
	if (file.patched.section(function.get().section).name.starts_with(".init"))
		die("%s: %s has run when the module is loaded; say \"keep\" in the plan, and why",
		    file.name.c_str(), name.c_str());
	if (name.find('.') == string::npos && file.stock.traced(file.stock.functions.at(name)[0]) &&
	    !plan.copy.contains(name)) {
		file.fates[function.symbol] = Fate::REPLACED;
	} else {
		file.fates[function.symbol] = Fate::COPIED;
		change_callers(function);
	}
}

// All that refers to @function, which the kernel goes on to have as it was.
void Cut::change_callers(const Id &function)
{
	for (File &file : files) {
		if (&file != function.file && function.local())
			continue;
		check_pointers(file, function);
		for (auto &[name, parts] : file.patched.functions) {
			Id caller{ &file, parts[0] };
			for (size_t part : parts) {
				const Section &section =
					file.patched.section(file.patched.symbol(part).section);
				for (const Relocation &r :
				     file.patched.relocations(file.patched.range(part))) {
					Code::Place to = file.patched.place(section, r);
					if (to.symbol != NONE && caller != function &&
					    is(file, file.patched.symbol(to.symbol), function))
						change(caller);
				}
			}
		}
	}
}

void Cut::check_pointers(const File &file, const Id &function) const
{
	for (const Section &section : file.stock.object.sections) {
		if (section.code() || table_of(section) || !(section.flags & SHF_ALLOC) ||
		    section.name.starts_with(DISCARDED))
			continue;
		for (const Relocation &r : section.relocations) {
			Code::Place to = file.stock.place(section, r);
			if (to.symbol != NONE && is(file, file.stock.symbol(to.symbol), function))
				die("%s: %s points to %s, which cannot be replaced",
				    file.name.c_str(), section.name.c_str(),
				    function.name().c_str());
		}
	}
}

void Cut::add(const Id &function)
{
	if (function.file->fates.try_emplace(function.symbol, Fate::ADDED).second)
		add_referenced(function);
}

// What is new, as far as @function needs it.
void Cut::add_referenced(const Id &function)
{
	File &file = *function.file;
	for (size_t part : file.patched.functions.at(function.name())) {
		const Section &section = file.patched.section(file.patched.symbol(part).section);
		for (const Relocation &r : section.relocations) {
			Code::Place to = file.patched.place(section, r);
			if (to.symbol == NONE)
				continue;
			Id id = resolve(file, to.symbol);
			if (id.function() && id.is_new())
				add(id);
		}
	}
}
