// SPDX-License-Identifier: GPL-2.0
/* probe/minimal.c, the probe for debuggers to copy, must agree with perf_bpf_probe. */

#include "lib/rights.h"
#include "tests/common.h"

namespace {

struct Ran {
	int code; /* exit code */
	std::string said;
};

/*
 * Runs a program of the suite, as root or without the right to load a program. There is no shell in
 * between, because the shell of a guest may be of another architecture.
 */
Ran run(const char *program, bool with_rights, const char *option = nullptr)
{
	Ran ran = {};
	Pipe output;
	Child child([&] {
		const std::string file = file_of_own_folder(program);

		if (!with_rights)
			become(NOBODY, 0);
		dup2(output.in.get(), STDOUT_FILENO);
		dup2(output.in.get(), STDERR_FILENO);
		execl(file.c_str(), program, option, nullptr);
		return 127;
	});
	char buffer[4096];

	output.in.close();
	for (ssize_t n; (n = read(output.out.get(), buffer, sizeof(buffer))) > 0;)
		ran.said.append(buffer, n);
	ran.code = exit_code(child.wait());
	return ran;
}

/* Whether perf_bpf_probe reports @result for @effect, both in the words of lib/effects.h. */
bool says(const Ran &probe, const std::string &effect, const std::string &result)
{
	const size_t at = probe.said.find("\"" + effect + "\"");

	return at != probe.said.npos &&
	       probe.said.find("\"" + result + "\"", at) < probe.said.find('}', at);
}

TEST("probe.minimal.root", "C1",
     "perf_bpf_probe_minimal reports the same as perf_bpf_probe about signals")
{
	Event(breakpoint(hit)).close(); /* skips the test without breakpoints */

	const Ran probe = run("perf_bpf_probe", true, "--json"),
		  minimal = run("perf_bpf_probe_minimal", true);

	note("%s", minimal.said.c_str());
	EXPECT_EQ(minimal.code,
		  says(probe, "sigio", "suppressed")  ? 0
		  : says(probe, "sigio", "delivered") ? 1
						      : 2,
		  "as exit code of perf_bpf_probe_minimal");
	EXPECT_VALUE(minimal.said.find("no attr.sigtrap") != minimal.said.npos,
		     says(probe, "sigtrap", "unavailable"),
		     "perf_bpf_probe_minimal reports that attr.sigtrap is missing");
}

TEST("probe.minimal.user", "C15",
     "without the right to load a program, both probes name the missing right")
{
	need_root();
	/* Skips the test without breakpoints: perf_bpf_probe_minimal checks for them first. */
	Event(breakpoint(hit)).close();

	const Ran probe = run("perf_bpf_probe", false),
		  minimal = run("perf_bpf_probe_minimal", false);

	note("%s", minimal.said.c_str());
	EXPECT_EQ(probe.code, 2, "as exit code of perf_bpf_probe");
	EXPECT_EQ(minimal.code, 2, "as exit code of perf_bpf_probe_minimal");
	/* perf_bpf_probe names all missing rights, perf_bpf_probe_minimal only the first. */
	const bool paranoid = minimal.said.find("perf_event_paranoid") != minimal.said.npos;

	EXPECT_TRUE(probe.said.find(paranoid ? "perf_event_paranoid" : "CAP_BPF") !=
				    probe.said.npos &&
			    minimal.said.find(paranoid ? "perf_event_paranoid" : "CAP_BPF") !=
				    minimal.said.npos,
		    "both probes name the same missing right");
}

} // namespace
