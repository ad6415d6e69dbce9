// SPDX-License-Identifier: GPL-2.0
// What the kernel itself does with what was copied.
#include <algorithm>
#include "cut.h"

using std::map, std::set, std::string, std::vector;

// Nothing that stays as it is may call or point to what was copied. What is static its own file alone
// can, which select() has seen; so look at what is global, in all the kernel.
void Cut::check_calls(const vector<Kernel_symbol> &symbols) const
{
	map<uint32_t, string> copied;
	set<string> known = plan.keep;
	for (const File &file : files) {
		for (const string &name : file.with(Fate::REPLACED))
			known.insert(name);
		for (const string &name : file.with(Fate::COPIED)) {
			known.insert(name);
			if (file.patched.symbol(file.patched.functions.at(name)[0]).bind !=
			    STB_LOCAL)
				if (auto address = file.address(name))
					copied[*address] = name;
		}
	}
	vector<Kernel_symbol> sorted = symbols;
	std::ranges::stable_sort(sorted, {}, &Kernel_symbol::address);
	for (auto &[start, bytes] : kernel.code()) {
		for (size_t i = 2; i + 4 <= bytes.size(); i++) {
			uint32_t value;
			memcpy(&value, &bytes[i], sizeof value);
			bool jump = (bytes[i - 1] & 0xfe) == 0xe8 ||
				    (bytes[i - 2] == 0x0f && (bytes[i - 1] & 0xf0) == 0x80);
			bool move = bytes[i - 2] == 0xc7 && (bytes[i - 1] & 0xf8) == 0xc0;
			auto it = jump	 ? copied.find(uint32_t(start + i + 4 + value))
				  : move ? copied.find(value)
					 : copied.end();
			if (it == copied.end())
				continue;
			// Several names may be at one address.
			auto after = std::ranges::upper_bound(sorted, start + i, {},
							      &Kernel_symbol::address);
			uint64_t at = after == sorted.begin() ? 0 : std::prev(after)->address;
			bool fine = false;
			string caller;
			for (auto s = after; s != sorted.begin() && std::prev(s)->address == at;
			     s--) {
				caller = std::prev(s)->name;
				fine |= known.contains(whole(caller));
			}
			if (!fine)
				die("the kernel's %s calls %s, which cannot be replaced",
				    caller.c_str(), it->second.c_str());
		}
	}
}
