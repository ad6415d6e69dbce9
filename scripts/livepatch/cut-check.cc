// SPDX-License-Identifier: GPL-2.0
// Checks that nothing in the kernel uses its own version of a copied function any more, and that
// the kernel finds the callers of the module's copies on the stack.
#include <algorithm>
#include "cut.h"

using std::map, std::set, std::string, std::vector;

namespace {
// Searches the kernel for references to copied functions. Functions that are replaced or copied,
// and those that the plan keeps, may refer to them.
class Search {
	vector<Kernel_symbol> sorted;
	map<uint32_t, string> targets; // copied functions by the lower half of their addresses
	set<uint64_t> allowed; // addresses of what may refer to them
	vector<std::pair<uint64_t, uint64_t>>
		lists; // [start, stop) of sections whose addresses the kernel never calls

public:
	Search(vector<Kernel_symbol> symbols)
		: sorted(std::move(symbols))
	{
		std::ranges::stable_sort(sorted, {}, &Kernel_symbol::address);
		for (string name : { "mcount_loc", "kprobe_blacklist" })
			lists.emplace_back(address("__start_" + name), address("__stop_" + name));
	}

	void add_target(uint64_t address, const string &name) { targets[address] = name; }
	void allow(uint64_t address) { allowed.insert(address); }
	// Allows all symbols of this name, and their unlikely parts.
	void allow(const string &name)
	{
		for (const Kernel_symbol &s : sorted)
			if (without_cold(s.name) == name)
				allowed.insert(s.address);
	}
	void code(uint64_t start, std::span<const unsigned char> bytes) const;
	void data(uint64_t start, std::span<const unsigned char> bytes) const;

private:
	uint64_t address(const string &name) const
	{
		auto it = std::ranges::find(sorted, name, &Kernel_symbol::name);
		return it == sorted.end() ? 0 : it->address;
	}
	void check(uint64_t at, const char *verb, uint32_t target) const;
};
} // namespace

void Search::check(uint64_t at, const char *verb, uint32_t target) const
{
	auto it = targets.find(target);
	if (it == targets.end() ||
	    std::ranges::any_of(lists, [&](auto &l) { return at >= l.first && at < l.second; }))
		return;
	auto after = std::ranges::upper_bound(sorted, at, {}, &Kernel_symbol::address);
	const Kernel_symbol *user = after == sorted.begin() ? nullptr : &*std::prev(after);
	if (!user || !allowed.contains(user->address))
		die("the kernel's %s %s %s, which is copied, not replaced; add its file to the "
		    "plan (\"object\") or its name (\"keep\")",
		    user ? user->name.c_str() : "code", verb, it->second.c_str());
}

// An instruction may begin at any byte.
void Search::code(uint64_t start, std::span<const unsigned char> bytes) const
{
	for (size_t i = 2; i + 4 <= bytes.size(); i++) {
		uint32_t value;
		memcpy(&value, &bytes[i], sizeof value);
		uint32_t relative = start + i + 4 + value;
		bool jump = (bytes[i - 1] & 0xfe) == 0xe8 ||
			    (bytes[i - 2] == 0x0f && (bytes[i - 1] & 0xf0) == 0x80);
		bool lea = bytes[i - 2] == 0x8d && (bytes[i - 1] & 0xc7) == 5;
		if (jump)
			check(start + i, "calls", relative);
		if (lea)
			check(start + i, "points to", relative);
		check(start + i, "points to", value);
	}
}

void Search::data(uint64_t start, std::span<const unsigned char> bytes) const
{
	for (size_t i = 0; i + 8 <= bytes.size(); i++) {
		uint64_t value;
		memcpy(&value, &bytes[i], sizeof value);
		if (value >> 31 == 0x1ffffffff)
			check(start + i, "points to", value);
	}
}

// When the live patch is disabled, the kernel looks on each task's stack for replaced functions,
// and for nothing else of the module. If one ended with a jump to a copied or new function, a task
// could sleep there without being seen, and the module could be freed meanwhile.
void Cut::check_jumps() const
{
	for (File &file : files)
		for (Action action : { Action::REPLACE, Action::COPY, Action::ADD })
			for (const string &name : file.functions_with(action))
				for (size_t part : file.patched.functions.at(name))
					check_jumps(function_of(file, name), part);
}

void Cut::check_jumps(const Id &function, size_t part) const
{
	constexpr unsigned char CALL = 0xe8;
	const Code &patched = function.file->patched;
	const Section &section = patched.section(patched.symbol(part).section);

	for (const Relocation &r : patched.relocations(patched.range(part))) {
		if (!is_jump(section, r) || section.bytes[r.offset - 1] == CALL)
			continue;
		Code::Place to = patched.place(section, r);
		if (to.symbol == NONE)
			continue;
		Id target = resolve(*function.file, to.symbol);
		if (target == function || !target.function() ||
		    plan.atomic.contains(target.name().substr(0, target.name().find('.'))))
			continue;
		if (target.action() == Action::COPY || target.action() == Action::ADD)
			die("%s: %s ends with a jump to %s: the kernel would not see a task that "
			    "sleeps there; add barrier() after the call, or \"atomic %s\" and the "
			    "reason to the plan",
			    function.file->name.c_str(), function.name().c_str(),
			    target.name().c_str(), target.name().c_str());
	}
}

// No code or data that stays as it is may refer to a copied function. Only its own file can refer
// to a static function, and select() has checked that file. So search the kernel for global
// functions.
void Cut::check_kernel(const vector<Kernel_symbol> &symbols) const
{
	Search search(symbols);
	for (const string &name : plan.keep) {
		bool ours = false;
		for (const File &file : files)
			if (auto it = file.plain.functions.find(name);
			    it != file.plain.functions.end()) {
				ours = true;
				for (size_t part : it->second)
					if (auto address = file.address(part))
						search.allow(*address);
			}
		if (ours)
			continue;
		if (kernel.addresses(name).size() > 1)
			die("the kernel has more than one symbol %s, so \"keep %s\" in the plan is "
			    "ambiguous; add its file to the plan (\"object\")",
			    name.c_str(), name.c_str());
		search.allow(name);
	}
	bool any = false;
	for (File &file : files)
		for (Action action : { Action::REPLACE, Action::COPY })
			for (const string &name : file.functions_with(action)) {
				for (size_t part : file.plain.functions.at(name))
					if (auto address = file.address(part))
						search.allow(*address);
				Location location = this->locate(function_of(file, name));
				if (action == Action::REPLACE || location.local)
					continue;
				if (exported.contains(name))
					die("%s: %s is copied, but it is exported: modules would "
					    "still call the kernel's function",
					    file.name.c_str(), name.c_str());
				search.add_target(location.address, name);
				any = true;
			}
	for (const Kernel::Contents &section : kernel.contents()) {
		if (!any)
			break;
		if (section.code)
			search.code(section.address, section.bytes);
		else
			search.data(section.address, section.bytes);
	}
}
