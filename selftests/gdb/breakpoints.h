/* SPDX-License-Identifier: GPL-2.0 */
/* The breakpoints that gdb has inserted: in the kernel with a program, or in gdbserver. */
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gdb/registers.h"
#include "lib/fd.h"

/* The place that a Z or z packet names, "0,ADDRESS,KIND", and the process that it applies to. */
struct Place {
	pid_t pid;
	char type; /* '0' software, '1' hardware, '2' to '4' watchpoints */
	uint64_t address;
	uint64_t kind;

	auto operator<=>(const Place &) const = default;
};

/*
 * A perf breakpoint on every thread of a process, whose program is the condition. Each hit that it
 * accepts also sends SIGIO to this process.
 */
struct Filtered {
	std::string request; /* gdb's packet, for gdbserver */
	std::vector<Fd> events; /* none if only the parent of the process had the breakpoint */
	std::string mapping; /* what was mapped at the address, see mapping_at() */
	bool enabled = false;
	bool in_use = false; /* was enabled when threads were last continued */
};

class Breakpoints {
public:
	/*
	 * @socket_of_gdbserver returns the inode of gdbserver's connection, by which its process is
	 * known: only processes that it traces get events.
	 */
	explicit Breakpoints(std::function<ino_t()> socket_of_gdbserver);

	/*
	 * Inserts the breakpoint of gdb's packet @request, whose conditions are @bytecode. Returns
	 * why it cannot, or nothing. If it cannot, an earlier breakpoint at @place may still be in
	 * force.
	 */
	std::string insert(const Place &place, const std::string &request,
			   const std::vector<std::string> &bytecode);
	/*
	 * gdb removes its breakpoints at every stop, and inserts them again when it resumes the
	 * program, so this only disables the events. Returns false for a breakpoint that is not
	 * here.
	 */
	bool remove(const Place &place);
	/* gdb lets threads run: breakpoints that are not enabled now have been deleted. */
	void continued();
	/* Closes the events, because gdbserver gets the breakpoint. */
	void drop(const Place &place) { filtered_.erase(place); }

	/* gdbserver has inserted @place, or removed it. */
	void gdbserver_has(const Place &place) { gdbserver_.insert(place); }
	void gdbserver_lacks(const Place &place) { gdbserver_.erase(place); }
	bool in_gdbserver(const Place &place) const { return gdbserver_.contains(place); }
	/*
	 * To be called before gdbserver gets @place, because ptrace(2) and perf share the debug
	 * registers: closes breakpoints until there is room. Returns the packets that insert these
	 * breakpoints in gdbserver; nothing if there cannot be enough room.
	 */
	std::optional<std::vector<std::string>> make_room(const Place &place);

	/*
	 * Keeps the target description of @pid: gdb reads one for each process, because their
	 * architectures may differ. A @pid of 0 is the process that the first stop will name, whose
	 * description gdb reads before that: name_first().
	 */
	void describe(pid_t pid, std::string_view description)
	{
		registers_[pid] = Registers(description);
	}
	void name_first(pid_t pid);
	/* Not known() unless gdb has read the description. */
	const Registers &registers_of(pid_t pid) const;

	/* To gdb, a new process has the breakpoints of its parent; it has no events yet. */
	void forked(pid_t parent, pid_t child);
	/*
	 * The same for vfork(2), by which the child shares the memory of its parent. Returns the
	 * requests to insert() for the child at once.
	 *
	 * insert() does not refuse such a child because it blocks SIGTRAP, as posix_spawn(3) does:
	 * gdbserver would write a breakpoint into the memory of the parent, and leave it there when
	 * the child executes a program.
	 */
	std::vector<std::string> vforked(pid_t parent, pid_t child);
	/* Whether gdbserver must not get @place for that reason. */
	bool in_memory_of_parent(const Place &place) const
	{
		return vforked_.contains(place.pid) && filtered_.contains(place);
	}
	/* Whether gdb believes @place inserted because the parent of the process had it. */
	bool is_of_parent(const Place &place) const
	{
		const auto known = filtered_.find(place);

		return known != filtered_.end() && known->second.events.empty() &&
		       !vforked_.contains(place.pid);
	}
	/* The process has exited, was detached, or runs another program. */
	void forget(pid_t pid);
	void forget_all();

	/*
	 * Threads that have hit but do not stop, because they block SIGTRAP. insert() refuses only
	 * processes in which a thread already does. @of: a process, or 0 for all.
	 */
	std::set<pid_t> threads_that_do_not_stop(pid_t of = 0) const;

	/* For the user: a line for each breakpoint in the kernel, with its hits so far. */
	std::string report() const;

	/*
	 * Whether a thread may have hit at @address, even if gdb has removed the breakpoint
	 * since.
	 */
	bool may_have_hit(pid_t pid, uint64_t address) const
	{
		return addresses_.contains({ pid, address });
	}

private:
	std::string why_not_here(pid_t pid) const;
	size_t slots_taken(pid_t pid) const;
	void close_unused(pid_t pid);
	void close_unloaded(pid_t pid);

	const std::function<ino_t()> socket_of_gdbserver_;
	std::map<pid_t, Registers> registers_;
	std::map<Place, Filtered> filtered_;
	std::set<Place> gdbserver_;
	std::set<std::pair<pid_t, uint64_t>> addresses_;
	std::set<pid_t> vforked_; /* children that share the memory of their parent */
	size_t slots_; /* breakpoint slots of a task on this machine */
};
