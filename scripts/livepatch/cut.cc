// SPDX-License-Identifier: GPL-2.0
// cut VMLINUX SYMBOLS MODULE.SYMVERS PLAN PLAIN ALIGNED STOCK PATCHED OUT
//
// Makes the objects of a live patch: the functions that differ between two compilations of the same
// files, linked to the kernel VMLINUX. Each FILE, such as kernel/events/core.o, was compiled four
// times:
//   PLAIN/FILE    from the kernel's source, exactly as the kernel's own build does it
//   ALIGNED/FILE  from the same source, with -falign-functions=64
//   STOCK/FILE    from the same source, with -ffunction-sections -fdata-sections as well
//   PATCHED/FILE  from the patched source, with the same options as STOCK/FILE
//
// 1. place(): PLAIN/FILE must be in VMLINUX byte for byte, each section in one piece. This proves
//    that source, compiler and inlining are the kernel's. The kernel's instructions contain the
//    address of each symbol that FILE uses, including static symbols and symbols that share a
//    name. STOCK/FILE must have the same functions as PLAIN/FILE, or, with the same references
//    and calls as those, as ALIGNED/FILE: the compiler aligns loops, so the padding before a loop
//    depends on the address of its function. All data of PATCHED/FILE must have the same values
//    as in STOCK/FILE.
// 2. select(): a function that differs between STOCK and PATCHED is replaced. If it cannot be
//    replaced, because it is not traced, is a clone made by the compiler, or is a "copy" of PLAN,
//    it is copied, and its callers are replaced. check_kernel() searches all of the kernel for uses
//    of copied functions; a remaining one is an error. check_jumps(): a caller must stay on the
//    stack while a copied or new function runs, because the kernel looks for replaced functions
//    there before it lets the module be unloaded.
// 3. write(): OUT/FILE has the replaced and copied functions, under the names livepatch_NAME, and
//    the new ones. Everything else that they use is in the kernel. A pointer to a function that the
//    kernel has is the address of the kernel's function, so no pointer leads into the module.
//    OUT/functions.h lists the replaced functions, and OUT/differences how each function differs.
//
// A line of PLAN is one of:
//   object FILE    an object to compile and compare
//   copy NAME      copy this function instead of replacing it
//   keep NAME      use the kernel's function or data, although it differs or uses a copied function
//   atomic NAME    callers may end with a jump to this function, because no task is preempted in it
//   without PATCH  a patch of the series that is not applied to PATCHED
//   ignore FILE    a source file that the patches change, but whose object is not compared
// Comments (#) give the reasons.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include "cut.h"

namespace fs = std::filesystem;
using std::map, std::set, std::string, std::vector;

Plan::Plan(const string &path)
{
	std::ifstream in(path);
	if (!in)
		die("%s: %s", path.c_str(), strerror(errno));
	for (string line; std::getline(in, line);) {
		std::istringstream words(line.substr(0, line.find('#')));
		string verb, name, rest;
		if (!(words >> verb))
			continue;
		set<string> *which = verb == "object"	 ? &objects
				     : verb == "copy"	 ? &copy
				     : verb == "keep"	 ? &keep
				     : verb == "atomic"	 ? &atomic
				     : verb == "without" ? &without
				     : verb == "ignore"	 ? &ignore
							 : nullptr;
		if (!which || !(words >> name) || words >> rest)
			die("%s: a line must be \"object\", \"copy\", \"keep\", \"atomic\", "
			    "\"without\" or \"ignore\" and one name, not \"%s\"",
			    path.c_str(), line.c_str());
		which->insert(name);
	}
}

static string contents(const fs::path &path)
{
	std::ifstream in(path, std::ios::binary);
	return { std::istreambuf_iterator<char>(in), {} };
}

void Plan::check_sources(const string &stock, const string &patched) const
{
	for (const fs::directory_entry &entry : fs::recursive_directory_iterator(patched)) {
		fs::path file = entry.path().lexically_relative(patched), object = file;
		string machine = file.generic_string();
		bool source = file.extension() == ".c" || file.extension() == ".S";
		bool other = machine.starts_with("arch/") && !machine.starts_with("arch/x86/");
		if (source && !other && contents(entry.path()) != contents(stock / file) &&
		    !objects.contains(object.replace_extension(".o")) && !ignore.contains(file))
			die("%s: the patches change this file, but the plan does not list it; add "
			    "\"object\" or \"ignore\"",
			    file.c_str());
	}
}

static vector<Kernel_symbol> read_symbols(const string &path)
{
	vector<Kernel_symbol> symbols;
	std::ifstream in(path);
	Kernel_symbol symbol;
	while (in >> std::hex >> symbol.address >> symbol.type >> symbol.name)
		symbols.push_back(symbol);
	if (symbols.empty())
		die("%s: there are no symbols in this file", path.c_str());
	return symbols;
}

static map<string, bool> read_exported(const string &path)
{
	map<string, bool> exported;
	std::ifstream in(path);
	for (string line; std::getline(in, line);) {
		std::istringstream words(line);
		string crc, name, module, kind, space;
		// A symbol exported to a namespace is not available to every module.
		if (words >> crc >> name >> module >> kind && module == "vmlinux")
			exported[name] = !(words >> space);
	}
	if (exported.empty())
		die("%s: there are no symbols of vmlinux in this file", path.c_str());
	return exported;
}

static void list(const char *what, const string &file, const vector<string> &names)
{
	if (names.empty())
		return;
	std::cout << file << ": " << what << ':';
	for (const string &name : names)
		std::cout << ' ' << name;
	std::cout << '\n';
}

int main(int count, char **arguments)
{
	if (count != 10)
		die("usage: cut VMLINUX SYMBOLS MODULE.SYMVERS PLAN PLAIN ALIGNED STOCK PATCHED "
		    "OUT");
	Kernel kernel(arguments[1]);
	vector<Kernel_symbol> symbols = read_symbols(arguments[2]);
	map<string, bool> exported = read_exported(arguments[3]);
	Plan plan(arguments[4]);
	plan.check_sources(arguments[7], arguments[8]);
	const string out = arguments[9];

	kernel.set_symbols(symbols);
	vector<File> files;
	for (const string &name : plan.objects)
		files.emplace_back(name, arguments[5], arguments[6], arguments[7], arguments[8]);
	for (File &file : files) {
		file.place(kernel);
		file.check_stock();
	}
	Cut cut(kernel, plan, exported, files);
	cut.check_data();
	cut.select();
	cut.check_jumps();
	cut.check_kernel(symbols);

	std::ofstream functions(out + "/functions.h"), differences(out + "/differences");
	for (File &file : files) {
		cut.write(file).write(out + "/" + file.name);
		vector<string> kept;
		std::ranges::set_intersection(file.changed, plan.keep, std::back_inserter(kept));
		list("replaced", file.name, file.functions_with(Action::REPLACE));
		list("copied", file.name, file.functions_with(Action::COPY));
		list("new", file.name, file.functions_with(Action::ADD));
		list("kept as it is", file.name, kept);
		for (const string &name : file.functions_with(Action::REPLACE))
			functions << "REPLACE(" << name << ", "
				  << cut.position(function_of(file, name)) << ")\n";
		for (const string &name : file.changed)
			differences
				<< file.name << ": " << name << ": "
				<< file.patched.function(name).difference(file.stock.function(name))
				<< '\n';
	}
	if (!functions.flush() || !differences.flush())
		die("cannot write to %s", out.c_str());
}
