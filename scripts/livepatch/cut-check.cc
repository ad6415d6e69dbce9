// SPDX-License-Identifier: GPL-2.0
// What the kernel itself does with what was copied.
#include <algorithm>
#include "cut.h"

using std::map, std::set, std::string, std::vector;

namespace {
// Looks for what leads to the copied functions from anywhere but the functions that the live patch,
// or its plan, has dealt with.
class Search {
	vector<Kernel_symbol> sorted;
	map<uint32_t, string> wanted;
	set<uint64_t> known;
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

	void want(uint64_t address, const string &name) { wanted[address] = name; }
	void know(uint64_t address) { known.insert(address); }
	// All that has the name, or is the unlikely part of it.
	void know(const string &name)
	{
		for (const Kernel_symbol &s : sorted)
			if (whole(s.name) == name)
				known.insert(s.address);
	}
	void code(uint64_t start, std::span<const unsigned char> bytes) const;
	void data(uint64_t start, std::span<const unsigned char> bytes) const;

private:
	uint64_t address(const string &name) const
	{
		auto it = std::ranges::find(sorted, name, &Kernel_symbol::name);
		return it == sorted.end() ? 0 : it->address;
	}
	void found(uint64_t at, const char *does, uint32_t what) const;
};
} // namespace

void Search::found(uint64_t at, const char *does, uint32_t what) const
{
	auto it = wanted.find(what);
	if (it == wanted.end() ||
	    std::ranges::any_of(lists, [&](auto &l) { return at >= l.first && at < l.second; }))
		return;
	auto after = std::ranges::upper_bound(sorted, at, {}, &Kernel_symbol::address);
	const Kernel_symbol *who = after == sorted.begin() ? nullptr : &*std::prev(after);
	if (!who || !known.contains(who->address))
		die("the kernel's %s %s %s, which cannot be replaced",
		    who ? who->name.c_str() : "code", does, it->second.c_str());
}

// Instructions begin anywhere.
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
			found(start + i, "calls", relative);
		if (lea)
			found(start + i, "points to", relative);
		found(start + i, "points to", value);
	}
}

void Search::data(uint64_t start, std::span<const unsigned char> bytes) const
{
	for (size_t i = 0; i + 8 <= bytes.size(); i++) {
		uint64_t value;
		memcpy(&value, &bytes[i], sizeof value);
		if (value >> 31 == 0x1ffffffff)
			found(start + i, "points to", value);
	}
}

// Nothing that stays as it is may call or point to what was copied. What is static its own file
// alone can, which select() has seen; so look at what is global, in all the kernel.
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
						search.know(*address);
			}
		if (ours)
			continue;
		if (kernel.addresses(name).size() > 1)
			die("the kernel has more than one %s, and the plan keeps it: which?",
			    name.c_str());
		search.know(name);
	}
	bool any = false;
	for (File &file : files)
		for (Fate fate : { Fate::REPLACED, Fate::COPIED })
			for (const string &name : file.with(fate)) {
				for (size_t part : file.plain.functions.at(name))
					if (auto address = file.address(part))
						search.know(*address);
				Home home = this->home(function_of(file, name));
				if (fate == Fate::REPLACED || home.local)
					continue;
				if (exported.contains(name))
					die("%s: %s is exported, and copied: modules would go on "
					    "to call the kernel's",
					    file.name.c_str(), name.c_str());
				search.want(home.address, name);
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
