// SPDX-License-Identifier: GPL-2.0
/*
 * The live patch itself: the list of the kernel functions that it replaces. "cut" has cut
 * the replacements out of the patched objects; this file only uses their addresses.
 */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/smp.h>
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
 * An exiting task that has been reaped is in no list, so a transition gives it no state.
 * klp_ftrace_handler() warns if such a task calls a function that is in transition, and its last
 * __schedule() does while an event counts context switches. Wait until these tasks are gone. When
 * this is called, all other tasks have a state already, and new tasks inherit one.
 */
static void wait_for_tasks_in_no_list(void)
{
	synchronize_rcu_tasks();
	/* __schedule() reports a quiescent state before it calls perf, but with interrupts off. */
	kick_all_cpus_sync();
}

/*
 * While the live patch is in force, the functions are in this list instead of in the object. When
 * the live patch is disabled, the kernel puts the functions of the object in transition before it
 * calls the first callback; with an empty object, pre_unpatch can wait first, and then return the
 * functions. Meanwhile the kernel would only search the object for a live patch that replaces all
 * others. So when another live patch is loaded, the functions are returned before it is
 * initialised, and stay in the object. klp_mutex protects both variables.
 */
static LIST_HEAD(in_force);
static bool other_came;
module_param(other_came, bool, 0444);
MODULE_PARM_DESC(other_came,
		 "another live patch was loaded later: unloading this one may print a warning");

static void return_functions(struct klp_object *object)
{
	list_splice_init(&in_force, &object->func_list);
}

static int pre_patch(struct klp_object *object)
{
	wait_for_tasks_in_no_list();
	return 0;
}

static void post_patch(struct klp_object *object)
{
	hw_breakpoint_set_mutex_known(true);
	if (!other_came)
		list_splice_init(&object->func_list, &in_force);
}

static void pre_unpatch(struct klp_object *object)
{
	struct klp_func *func;

	hw_breakpoint_set_mutex_known(false);
	wait_for_tasks_in_no_list();
	return_functions(object);
	klp_for_each_func(object, func)
		func->transition = true;
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
 * The new members of the running kernel's structs are in holes before an aligned member. Tasks
 * that exist already, and their children, must have zero there.
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
		pr_err("%s: task %d has data in an unused part of task_struct; reboot\n",
		       THIS_MODULE->name, task_pid_nr(task));
		ret = -EUCLEAN;
		goto out;
	}
out:
	rcu_read_unlock();
	return ret;
}

/*
 * If another live patch has replaced a function, replacing it again would undo that change, because
 * both replacements are made from the kernel's own function. Neither list nor mutex is exported.
 */
extern struct list_head klp_patches asm("\".klp.sym.vmlinux.klp_patches,1\"");
extern struct mutex klp_mutex asm("\".klp.sym.vmlinux.klp_mutex,1\"");

/* Called before the init function of a module, which enables a live patch. */
static int module_changes(struct notifier_block *notifier, unsigned long state, void *module)
{
	if (state == MODULE_STATE_COMING && is_livepatch_module(module)) {
		mutex_lock(&klp_mutex);
		other_came = true;
		return_functions(objects);
		mutex_unlock(&klp_mutex);
	}
	return NOTIFY_OK;
}

static struct notifier_block module_notifier = {
	.notifier_call = module_changes,
};

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
	int ret;

	if (strcmp(init_utsname()->version, BUILD)) {
		pr_err("%s: built for %s, but the running kernel is %s\n", THIS_MODULE->name,
		       BUILD, init_utsname()->version);
		return -ENOEXEC;
	}

	hw_breakpoint_init_mutexes();

	ret = hole_is_zero() ?: nothing_is_replaced() ?: register_module_notifier(&module_notifier);
	if (ret)
		return ret;
	ret = klp_enable_patch(&patch);
	if (ret)
		unregister_module_notifier(&module_notifier);
	return ret;
}

static void __exit livepatch_exit(void)
{
	unregister_module_notifier(&module_notifier);
}

module_init(livepatch_init);
module_exit(livepatch_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("BPF programs that suppress every side effect of a perf overflow");
MODULE_INFO(livepatch, "Y");
