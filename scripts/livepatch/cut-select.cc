// SPDX-License-Identifier: GPL-2.0
// Decides which functions are replaced, copied and added.
#include "cut.h"

using std::string, std::vector;

vector<string> File::functions_with(Action action) const
{
	vector<string> names;
	for (auto &[name, parts] : patched.functions)
		if (this->action(parts[0]) == action)
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

// The function or variable that @symbol of @file's PATCHED refers to. If @file does not define it,
// another file of the plan may.
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
	return without_cold(symbol.name) == id.name() &&
	       (symbol.section == SHN_UNDEF ? !id.local() : &file == id.file);
}

Location Cut::locate(const Id &id) const
{
	const File &file = *id.file;
	Location location{ id.name(), 0, id.local() };
	std::optional<uint64_t> address, global = kernel.global(location.name);
	std::optional<size_t> theirs;
	if (file.patched.defines(id.symbol))
		theirs = file.counterpart(id.symbol);
	else if (!(address = file.address(location.name)))
		// A patch may remove a function from this file and still refer to it.
		theirs = file.plain.find(location.name);
	if (theirs) {
		location.name = file.plain.symbol(*theirs).name;
		location.local = file.plain.symbol(*theirs).bind == STB_LOCAL;
		address = file.address(*theirs);
		if (location.local && !id.local() && global)
			die("%s: %s is ambiguous: the kernel has a static symbol of this file and "
			    "a global one with this name",
			    file.name.c_str(), location.name.c_str());
	}
	if (!address && !location.local)
		address = global;
	if (!address)
		die("%s: the address of %s is unknown: the kernel's code in this file does not "
		    "refer to it, and %s",
		    file.name.c_str(), location.name.c_str(),
		    location.local ? "it is static"
				   : "there is not exactly one global symbol of this name");
	location.address = *address;
	return location;
}

unsigned Cut::position(const Id &id) const
{
	Location location = this->locate(id);
	std::optional<unsigned> position = kernel.position(location.name, location.address);
	if (!position)
		die("%s: the kernel's symbols have no %s at %#lx", id.file->name.c_str(),
		    location.name.c_str(), location.address);
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
		// A new global function is called by another file or by main.c.
		for (auto &[name, parts] : file.patched.functions)
			if (Id id{ &file, parts[0] }; id.get().bind == STB_GLOBAL && id.is_new())
				add(id);
		for (Action action : { Action::REPLACE, Action::COPY })
			for (const string &name : file.functions_with(action))
				add_referenced(function_of(file, name));
	}
}

// Replaces @function, or copies it and replaces its callers, unless the plan keeps it.
void Cut::change(const Id &function)
{
	const string &name = function.name();
	File &file = *function.file;
	if (plan.keep.contains(name) || function.action() != Action::KEEP || function.is_new())
		return;
	if (file.patched.section(function.get().section).name.starts_with(".init"))
		die("%s: %s runs during boot, before the module is loaded; add \"keep %s\" and the "
		    "reason to the plan",
		    file.name.c_str(), name.c_str(), name.c_str());
	if (name.find('.') == string::npos && file.stock.traced(file.stock.functions.at(name)[0]) &&
	    !plan.copy.contains(name)) {
		file.actions[function.symbol] = Action::REPLACE;
	} else {
		file.actions[function.symbol] = Action::COPY;
		change_callers(function);
	}
}

// Changes all functions that refer to @function, because the kernel's @function is not replaced.
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
				die("%s: section %s points to %s, which is copied, not replaced",
				    file.name.c_str(), section.name.c_str(),
				    function.name().c_str());
		}
	}
}

void Cut::add(const Id &function)
{
	if (function.file->actions.try_emplace(function.symbol, Action::ADD).second)
		add_referenced(function);
}

// Adds the new functions that @function refers to.
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
