// SPDX-License-Identifier: GPL-2.0
/*
 * The live patch itself: which functions of the kernel are replaced. They were cut
 * out of the patched files by "cut"; only their addresses are used here.
 */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/utsname.h>
#include "build.h"

#define REPLACE(name, position) void livepatch_##name(void);
#include "functions.h"
#undef REPLACE

#define REPLACE(name, position) \
	{ .old_name = #name, .new_func = livepatch_##name, .old_sympos = position },

static struct klp_func funcs[] = {
#include "functions.h"
	{ }
};

void hw_breakpoint_init_mutexes(void);
void hw_breakpoint_set_mutex_known(bool known);

/*
 * A task that has been reaped, and has its last __schedule() ahead, is in no list, so this
 * transition gave it no state. klp_ftrace_handler() warns if such a task calls a function that is
 * replaced, and __schedule() does while an event counts context switches. Nothing is replaced yet:
 * let these tasks go. When the live patch is disabled, there is no callback that comes before the
 * states.
 */
static int pre_patch(struct klp_object *object)
{
	synchronize_rcu_tasks();
	return 0;
}

static void post_patch(struct klp_object *object)
{
	hw_breakpoint_set_mutex_known(true);
}

static void pre_unpatch(struct klp_object *object)
{
	hw_breakpoint_set_mutex_known(false);
}

static struct klp_object objects[] = {
	{
		.funcs = funcs,
		.callbacks = {
			.pre_patch = pre_patch,
			.post_patch = post_patch,
			.pre_unpatch = pre_unpatch,
		},
	},
	{ }
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objects,
};

/*
 * What is new in structs of the running kernel is where these have a hole, before something that is
 * aligned. In tasks that were there before, and their children, it should be zero.
 */
static_assert(offsetof(struct task_struct, bpf_instrumentation_off) % sizeof(long));
static_assert(offsetof(struct perf_event, pins_context) % sizeof(long));

static int __init hole_is_zero(void)
{
	struct task_struct *group, *task;
	int ret = 0;

	rcu_read_lock();
	for_each_process_thread(group, task) {
		if (!task->bpf_instrumentation_off)
			continue;
		pr_err("%s: task %d uses a hole of task_struct; reboot\n",
		       THIS_MODULE->name, task_pid_nr(task));
		ret = -EUCLEAN;
		goto out;
	}
out:
	rcu_read_unlock();
	return ret;
}

/*
 * A function that replaces one that is already replaced hides it: both are made from the kernel's
 * own function. These two are not exported.
 */
extern struct list_head klp_patches asm("\".klp.sym.vmlinux.klp_patches,1\"");
extern struct mutex klp_mutex asm("\".klp.sym.vmlinux.klp_mutex,1\"");

static bool __init is_replaced(const struct klp_func *ours)
{
	struct klp_object *object;
	struct klp_patch *other;
	struct klp_func *func;

	list_for_each_entry(other, &klp_patches, list)
		klp_for_each_object(other, object) {
			if (object->name)
				continue;
			klp_for_each_func(object, func)
				if (!strcmp(func->old_name, ours->old_name)) {
					pr_err("%s: %s is already replaced by the live patch %s\n",
					       THIS_MODULE->name, ours->old_name, other->mod->name);
					return true;
				}
		}
	return false;
}

static int __init nothing_is_replaced(void)
{
	const struct klp_func *func;
	int ret = 0;

	mutex_lock(&klp_mutex);
	for (func = funcs; func->old_name && !ret; func++)
		if (is_replaced(func))
			ret = -EBUSY;
	mutex_unlock(&klp_mutex);
	return ret;
}

static int __init livepatch_init(void)
{
	if (strcmp(init_utsname()->version, BUILD)) {
		pr_err("%s: made for %s, and this is %s\n", THIS_MODULE->name, BUILD,
		       init_utsname()->version);
		return -ENOEXEC;
	}

	hw_breakpoint_init_mutexes();

	return hole_is_zero() ?: nothing_is_replaced() ?: klp_enable_patch(&patch);
}

static void __exit livepatch_exit(void)
{
}

module_init(livepatch_init);
module_exit(livepatch_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("BPF programs that suppress every side effect of a perf overflow");
MODULE_INFO(livepatch, "Y");
