// SPDX-License-Identifier: GPL-2.0
/*
 * How a debugger without rights can obtain a filter. C15: each method works at exactly these values
 * of the settings that restrict it.
 */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <cerrno>
#include <string>
#include <vector>

#include "lib/kernel.h"
#include "lib/mount.h"
#include "lib/rights.h"
#include "lib/sysctl.h"
#include "tests/common.h"
#include "uses/uses.h"

/* BPF tokens came with Linux 6.9, which is newer than the headers here. */
constexpr int TOKEN_CREATE = 36; /* enum bpf_cmd */
constexpr uint32_t F_TOKEN_FD = 1 << 16; /* prog_flags, map_flags */
/* The largest member is first, so that = {} clears all bytes: the kernel checks them. */
union TokenAttr {
	struct {
		uint32_t type, insn_cnt;
		uint64_t insns, license;
		uint32_t log_level, log_size;
		uint64_t log_buf;
		uint32_t kern_version, flags;
		uint32_t unused[24];
		int32_t token_fd;
	} prog;
	struct {
		uint32_t map_type, key_size, value_size, max_entries, flags;
		uint32_t unused[14];
		int32_t token_fd;
	} map;
	struct {
		uint32_t flags, bpffs_fd;
	} create;
};
static_assert(sizeof(TokenAttr::map) == 80 && sizeof(TokenAttr::prog) == 152);

static int bpf(int command, TokenAttr &attr)
{
	return syscall(SYS_bpf, command, &attr, sizeof(attr));
}

namespace {

/* The steps of a debugger, in their order. */
enum Step { GET, OPEN, ATTACH, NONE };
constexpr const char *steps[] = { "getting the filter", "perf_event_open()", "attaching",
				  "nothing" };

/* The result: the step that was refused, if any, and its errno. */
struct Tried {
	Step refused = NONE;
	int err = 0;

	bool operator==(const Tried &) const = default;
	std::string text() const
	{
		return std::string(steps[refused]) + " fails" +
		       (err ? " with " + errno_name(err) : "");
	}
};

/* A filter that was lent: the program, and the map with its condition. */
struct BorrowedFilter {
	Fd program, globals;
};

} // namespace

/* The debugger's use of the filter: only the third of its hits is accepted. */
static Tried seek_with(const BorrowedFilter &lent)
{
	if (!lent.program.valid() || !lent.globals.valid())
		return { GET, errno };

	const BorrowedGlobals globals(lent.globals.get());

	if (!globals.valid())
		return { GET, errno };

	auto *condition = globals.get();
	Fd fd = open_event(breakpoint(hit));

	if (!fd.valid())
		return { OPEN, errno };

	Event event(std::move(fd));

	if (int err = event.attach(lent.program.get()))
		return { ATTACH, err };

	Ring ring(event);

	condition->seek_seen = 0;
	condition->seek_nth = 3;
	event.enable();
	hit_times(HITS);
	ring.drain();
	EXPECT_EQ(event.count(), HITS, "hits counted");
	EXPECT_EQ(ring.samples(), 1, "samples");
	return {};
}

/* --- the methods: what root does, in advance or over a socket, and what the debugger does --- */

static void lend(int debugger, const Uses &uses)
{
	send_fd(debugger, uses.prog_fd());
	send_fd(debugger, bpf_map__fd(uses->maps.bss));
}

static Tried borrow(int lender)
{
	int err;
	BorrowedFilter lent;

	lent.program = receive_fd(lender, &err);
	lent.globals = receive_fd(lender, &err);
	return seek_with(lent);
}

static constexpr char bpffs[] = "/sys/fs/bpf", pinned_program[] = "/sys/fs/bpf/program",
		      pinned_globals[] = "/sys/fs/bpf/globals";

static Tried open_pinned(int)
{
	BorrowedFilter lent;

	lent.program = Fd(bpf_obj_get(pinned_program));
	if (lent.program.valid())
		lent.globals = Fd(bpf_obj_get(pinned_globals));
	return seek_with(lent);
}

/* Delegates a bpffs in the debugger's user namespace, which allows what @delegated lists. */
static void delegate(int debugger, const Uses &)
{
	static constexpr std::pair<const char *, uint64_t> delegated[] = {
		{ "delegate_cmds", 1 << BPF_MAP_CREATE | 1 << BPF_PROG_LOAD },
		{ "delegate_maps", 1 << BPF_MAP_TYPE_ARRAY },
		{ "delegate_progs", 1 << BPF_PROG_TYPE_PERF_EVENT },
		{ "delegate_attachs", 1 << 0 }, /* expected_attach_type, which is 0 */
	};
	int err;
	Fd context = receive_fd(debugger, &err);

	for (auto &[name, bits] : delegated)
		if (fsconfig(context.get(), FSCONFIG_SET_STRING, name, std::to_string(bits).c_str(),
			     0))
			setup_failed(name, errno);
	if (fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0))
		setup_failed("FSCONFIG_CMD_CREATE", errno);
	send_fd(debugger, Fd(fsmount(context.get(), FSMOUNT_CLOEXEC, 0)).get());
}

/*
 * Loads the program "seek" of uses.bpf.c, without its condition, by bpf(2): libbpf may not support
 * tokens.
 */
static Fd load_seek(int token, int globals)
{
	constexpr int16_t SEEN = offsetof(uses::uses__bss, seek_seen),
			  NTH = offsetof(uses::uses__bss, seek_nth);
	const bpf_insn insns[] = {
		{ BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_VALUE, 0, globals },
		{},
		{ BPF_LDX | BPF_DW | BPF_MEM, BPF_REG_2, BPF_REG_1, SEEN, 0 },
		{ BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, 1 },
		{ BPF_STX | BPF_DW | BPF_MEM, BPF_REG_1, BPF_REG_2, SEEN, 0 },
		{ BPF_LDX | BPF_DW | BPF_MEM, BPF_REG_3, BPF_REG_1, NTH, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0 },
		{ BPF_JMP | BPF_JNE | BPF_X, BPF_REG_2, BPF_REG_3, 1, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	TokenAttr attr = {};

	attr.prog.type = BPF_PROG_TYPE_PERF_EVENT;
	attr.prog.insns = reinterpret_cast<uintptr_t>(insns);
	attr.prog.insn_cnt = std::size(insns);
	attr.prog.license = reinterpret_cast<uintptr_t>("GPL");
	attr.prog.flags = F_TOKEN_FD;
	attr.prog.token_fd = token;
	return Fd(bpf(BPF_PROG_LOAD, attr));
}

static Tried load_by_token(int delegator)
{
	int err;

	/* fsopen(2) requires CAP_SYS_ADMIN in the user namespace that owns the mount namespace. */
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		setup_failed("unshare", errno);

	const Fd context(fsopen("bpf", FSOPEN_CLOEXEC));

	if (!context.valid())
		setup_failed("fsopen", errno);
	send_fd(delegator, context.get());

	const Fd mount = receive_fd(delegator, &err);
	const Fd root(openat(mount.get(), ".", O_DIRECTORY | O_CLOEXEC));
	TokenAttr attr = {};

	attr.create.bpffs_fd = root.get();

	const Fd token(bpf(TOKEN_CREATE, attr));

	if (!token.valid())
		return { GET, errno };
	attr = {};
	attr.map = {
		BPF_MAP_TYPE_ARRAY, 4, sizeof(uses::uses__bss), 1, BPF_F_MMAPABLE | F_TOKEN_FD, {},
		token.get()
	};

	BorrowedFilter lent;

	lent.globals = Fd(bpf(BPF_MAP_CREATE, attr));
	if (lent.globals.valid())
		lent.program = load_seek(token.get(), lent.globals.get());
	return seek_with(lent);
}

static void need_tokens(const Uses &)
{
	TokenAttr attr = {};

	attr.create.bpffs_fd = ~0u;
	if (const int err = bpf(TOKEN_CREATE, attr) ? errno : 0; err != EBADF) {
		if (kernel_before(6, 9))
			unavailable("the kernel has no BPF tokens (they came with 6.9)");
		setup_failed("BPF_TOKEN_CREATE without a descriptor", err);
	}
	if (Child([] {
		    become(NOBODY, 0);
		    return unshare(CLONE_NEWUSER);
	    }).wait())
		unavailable("an ordinary user cannot create a user namespace");
}

/* Runs a test with a copy of this program, @file, and returns the exit code. */
static int run_as(const char *file)
{
	return exit_code(Child([&] {
				 execl(file, "debugger", "effects.sample.rejected", nullptr);
				 return errno;
			 }).wait());
}

static constexpr int SKIPPED_ALL = 4;

static Tried without_rights(int)
{
	EXPECT_VALUE(run_as("/proc/self/exe"), SKIPPED_ALL, "exit code of a run without rights");
	return { GET, try_least(0).valid() ? 0 : errno };
}

/* The file has no CAP_SYS_ADMIN, which is required if perf_event_paranoid forbids events. */
static Tried file_capabilities(int)
{
	const int code = run_as("debugger");

	if (code == SKIPPED_ALL)
		return { OPEN, EACCES };
	EXPECT_VALUE(code, 0, "exit code of the program with capabilities");
	return {};
}

static void pin(const Uses &uses)
{
	if (!mount_privately("bpf", bpffs))
		unavailable("bpffs cannot be mounted");
	if (bpf_obj_pin(uses.prog_fd(), pinned_program) ||
	    bpf_obj_pin(bpf_map__fd(uses->maps.bss), pinned_globals))
		setup_failed("bpf_obj_pin", errno);
	if (chown(pinned_program, NOBODY, NOBODY) || chown(pinned_globals, NOBODY, NOBODY))
		setup_failed("chown", errno);
}

/* Makes a copy of this program, "debugger" in the current folder, with file capabilities. */
static void give_capabilities(const Uses &)
{
	/* Permitted, and effective at exec: capabilities(7). */
	const vfs_cap_data capabilities = {
		.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
		.data = { { uint32_t(BPF | PERFMON), 0 }, { (BPF | PERFMON) >> 32, 0 } },
	};

	if (!mount_privately("tmpfs", "/run", "mode=755") || chdir("/run"))
		setup_failed("mount of a tmpfs", errno);
	std::ofstream("debugger", std::ios::binary)
		<< std::ifstream("/proc/self/exe", std::ios::binary).rdbuf();
	if (chmod("debugger", 0755))
		setup_failed("chmod", errno);
	if (setxattr("debugger", "security.capability", &capabilities, sizeof(capabilities), 0))
		unavailable("no file capabilities on a tmpfs (CONFIG_TMPFS_XATTR)");
}

namespace {

const struct Method {
	const char *name, *says;
	Tried (*use)(int root); /* in the debugger */
	void (*give)(int debugger, const Uses &uses) = [](int, auto &) {}; /* in a root process */
	void (*need)(const Uses &uses) = [](auto &) {}; /* called first, in the test itself */
	/* The step that is refused at this value of kernel.unprivileged_bpf_disabled. */
	Step (*refused)(int setting) = [](int) { return NONE; };
} methods[] = {
	{ .name = "none",
	  .says = "a debugger without rights cannot load a filter",
	  .use = without_rights,
	  .refused = [](int) { return GET; } },
	{ .name = "file_capabilities",
	  .says = "a debugger whose file has CAP_BPF and CAP_PERFMON can load a filter",
	  .use = file_capabilities,
	  .need = give_capabilities },
	{ .name = "broker",
	  .says = "a debugger without rights can use a program and a map that it receives",
	  .use = borrow,
	  .give = lend },
	/*
	 * c8644cd0efe7, "bpf: refine kernel.unprivileged_bpf_disabled behaviour", came with 5.19.
	 */
	{ .name = "pinned",
	  .says = "a debugger that may read and write a pinned program and map can use them",
	  .use = open_pinned,
	  .need = pin,
	  .refused = [](int setting) { return setting && kernel_before(5, 19) ? GET : NONE; } },
	{ .name = "token",
	  .says = "a debugger with a BPF token from a delegated bpffs can load a filter",
	  .use = load_by_token,
	  .give = delegate,
	  .need = need_tokens },
};

} // namespace

/* Tries a method in a child, with a root process at the other end of a socket. */
static Tried try_it(const Method &method, const Uses &uses)
{
	Tried &tried = shared_with_children<Tried>();
	SocketPair ends;
	Child root([&] {
		ends.there.close();
		method.give(ends.here.get(), uses);
		return 0;
	});

	ends.here.close();
	EXPECT_STATUS(Child([&] {
			      become(NOBODY, 0);
			      tried = method.use(ends.there.get());
			      return 0;
		      }).wait(),
		      0, "the debugger");
	return tried;
}

/* Debian from level 3 on and Ubuntu at level 4 require CAP_SYS_ADMIN to open any event. */
static bool events_are_closed(int level)
{
	const int status = Child([] {
				   become(NOBODY, 0);
				   return open_event(breakpoint(hit)).valid() ? 0 : errno;
			   }).wait();
	const int err = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;

	if (err && (level < 3 || err != EACCES))
		fail("expected %s, got %s: the user's own breakpoint at perf_event_paranoid %d",
		     level < 3 ? "success" : "success or EACCES", errno_name(err).c_str(), level);
	return err;
}

static void check_method(const Method &method)
{
	/* Skips the test without breakpoints. */
	Event(breakpoint(hit)).close();

	Uses uses("seek");
	Sysctl disabled("kernel/unprivileged_bpf_disabled"), paranoid("kernel/perf_event_paranoid");
	std::vector<int> settings;

	/*
	 * 1 is like 2 but cannot be reset, so it is tested only if the kernel was booted with it.
	 */
	for (int setting : { 0, 2 })
		if (disabled.set(setting))
			settings.push_back(setting);
	if (settings.empty())
		settings.push_back(1);

	method.need(uses);
	for (int setting : settings)
		for (int level = -1; level <= 4; level++) {
			Tried expected;

			disabled.set(setting);
			paranoid.set(level);
			expected.refused = method.refused(setting);
			if (expected.refused == NONE && events_are_closed(level))
				expected = { OPEN, EACCES };
			else if (expected.refused != NONE)
				expected.err = EPERM;

			const Tried tried = try_it(method, uses);

			if (tried != expected)
				fail("expected that %s, got that %s: unprivileged_bpf_disabled %d, "
				     "perf_event_paranoid %d",
				     expected.text().c_str(), tried.text().c_str(), setting, level);
		}
}

static const bool added_methods = [] {
	for (const Method &method : methods)
		add_test({ std::string("rights.way.") + method.name, "C15", method.says,
			   [&method] { check_method(method); } });
	return true;
}();

/* systemd mounts bpffs with mode=700; the kernel's default mode allows all users to pin objects. */
TEST("rights.lent", "C15",
     "a lent program is freed after both its lender and its borrower have exited")
{
	__u32 &id = shared_with_children<__u32>();

	in_child([&] {
		const Uses uses("seek");
		Sysctl paranoid("kernel/perf_event_paranoid");

		paranoid.set(2);
		id = info_of_program(uses.prog_fd()).id;
		if (!mount_privately("bpf", bpffs, "mode=700"))
			unavailable("bpffs cannot be mounted");
		in_child([&] {
			become(NOBODY, 0);

			const BorrowedFilter lent = { Fd(dup(uses.prog_fd())),
						      Fd(dup(bpf_map__fd(uses->maps.bss))) };

			EXPECT_TRUE(seek_with(lent) == Tried(), "the borrowed filter works");
			EXPECT_TRUE(bpf_obj_pin(lent.program.get(), pinned_program) < 0,
				    "the borrower cannot pin the program");
			EXPECT_TRUE(bpf_prog_get_fd_by_id(id) < 0,
				    "the borrower cannot open the program by its id");
		});
	});
	EXPECT_TRUE(wait_until_freed(id), "the program is freed");
}
