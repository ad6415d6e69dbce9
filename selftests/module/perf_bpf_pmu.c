// SPDX-License-Identifier: GPL-2.0
/*
 * A hardware PMU for guests and test machines that have none. The perf core sees it like a driver
 * for real counters: its events are in perf_hw_context, each CPU has a few counters, overflows
 * occur in NMI, hard interrupt or task context, and a counter stops if perf_event_overflow()
 * returns non-zero.
 *
 * It counts
 *
 * - hits, on demand: "echo N [CPU] > /sys/kernel/debug/perf_bpf_pmu/CONTEXT" makes each counter of
 *   CPU, by default the current one, count N hits in CONTEXT, which is nmi (on x86), irq or task.
 *   When the write returns, all hits have been counted, except those on a CPU where the PMU was
 *   disabled and those in a mode that the event excludes, as in hardware;
 * - nanoseconds, in steps of a million, with PERF_BPF_PMU_CLOCK in attr.config, and for the cycles
 *   and instructions of PERF_TYPE_HARDWARE if no other PMU has them.
 *
 * The registers are the interrupted ones or, with PERF_BPF_PMU_COPY in attr.config, a copy of those
 * with which the task left user mode, like those of PEBS and IBS.
 *
 * With PERF_BPF_PMU_BATCH the driver collects BATCH overflows before it interrupts, for the same
 * events as large PEBS. With PERF_BPF_PMU_CALLCHAIN the driver puts the callchain into the sample
 * before it calls the core, like the drivers of PEBS and IBS.
 *
 * With PERF_BPF_PMU_TRACE each overflow also writes a page of an AUX area, if the event has one,
 * like the drivers of Intel PT and CoreSight. If it is full, the core disables the event. With
 * PERF_BPF_PMU_CUTS the driver reports that the trace is incomplete, which disables the event, too.
 *
 * From Linux 6.13 on, other events of its group can pause and resume an event (attr.aux_pause,
 * attr.aux_resume). The event does not stop then, but counts 1 << 24 for each pause and 1 for each
 * resume. Do not hit it as well, because it would add the hits.
 *
 * To interrupt the kernel at a given place, "echo FUNCTION > nmi_in" (on x86) makes one hit in an
 * NMI at the next call of FUNCTION.
 *
 * Reading "kgdb" (on x86) writes a word under a watchpoint that is installed as kgdb does it, and
 * returns the number of hits.
 *
 * From Linux 6.15 on, a PMU can be unregistered while it has events, such as that of an uncore
 * device whose driver root unbinds. "echo 1" and "echo 0" to the file "visitor" register and
 * unregister perf_bpf_visitor, which counts nothing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/hrtimer.h>
#include <linux/hw_breakpoint.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <asm/irq_regs.h>
#ifdef CONFIG_X86_LOCAL_APIC
#include <asm/apic.h>
#include <asm/nmi.h>
#endif

#define PERF_BPF_PMU_COPY	1
#define PERF_BPF_PMU_CLOCK	2
#define PERF_BPF_PMU_BATCH	4
#define PERF_BPF_PMU_CALLCHAIN	8
#define PERF_BPF_PMU_TRACE	16
#define PERF_BPF_PMU_CUTS	32
#define PERF_BPF_PMU_CONFIGS	64

#define COUNTERS	4
#define BATCH		4	/* records */
#define TICK		1000000	/* ns */

enum context { NMI, IRQ, TASK, CONTEXTS };

struct batch {
	unsigned int		records;
	struct pt_regs		regs[BATCH];
};

struct cpu_counters {
	struct perf_event	*events[COUNTERS];
	struct batch		batches[COUNTERS];
	bool			disabled;
	atomic_t		pending[CONTEXTS];	/* hits */
	struct hrtimer		irq_timer;	/* the interrupt of IRQ */
	struct hrtimer		tick;
};

static DEFINE_PER_CPU(struct cpu_counters, cpu_counters);

static bool force;
module_param(force, bool, 0400);
MODULE_PARM_DESC(force, "load even if the machine has a PMU");

static bool hold;
module_param(hold, bool, 0400);
MODULE_PARM_DESC(hold,
		 "keep the static keys of perf enabled, for an emulator that misses code patching");

/* Functions of the perf core that are not exported to modules. */
static typeof(perf_event_overflow) *event_overflow;
static typeof(perf_event_output) *event_output;
static typeof(perf_callchain) *callchain;

/* An event counts PAUSED when another event pauses it, and 1 when another event resumes it. */
#define PAUSED		(1 << 24)
#ifndef PERF_PMU_CAP_AUX_PAUSE
#define PERF_PMU_CAP_AUX_PAUSE	0
#define PERF_EF_PAUSE		0
#define PERF_EF_RESUME		0
#endif

static void *find(const char *name)
{
	struct kprobe probe = { .symbol_name = name };

	if (register_kprobe(&probe))
		return NULL;
	unregister_kprobe(&probe);
	return probe.addr;
}

static void pmu_stop(struct perf_event *event, int flags)
{
	if (flags & PERF_EF_PAUSE) {
		local64_add(PAUSED, &event->count);
		return;
	}
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static void pmu_start(struct perf_event *event, int flags)
{
	struct hw_perf_event *hwc = &event->hw;

	if (flags & PERF_EF_RESUME) {
		local64_inc(&event->count);
		return;
	}
	if (local64_read(&hwc->period_left) <= 0) {
		local64_set(&hwc->period_left, hwc->sample_period);
		hwc->last_period = hwc->sample_period;
	}
	hwc->state = 0;
}

static void save_callchain(struct perf_sample_data *data, struct perf_event *event,
			   struct pt_regs *regs)
{
	if (!(event->attr.sample_type & PERF_SAMPLE_CALLCHAIN))
		return;
	/* A driver's NMI handler does not need this lock. Here lockdep requires it. */
	rcu_read_lock();
	data->callchain = callchain(event, regs);
	rcu_read_unlock();
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	data->dyn_size += (1 + data->callchain->nr) * sizeof(u64);
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
	data->sample_flags |= PERF_SAMPLE_CALLCHAIN;
#endif
}

/* The pages are those of user space, and stay as they are. */
static void fill_aux_area(struct perf_event *event)
{
	struct perf_output_handle handle = { };

	if (!perf_aux_output_begin(&handle, event))
		return;
	if (event->hw.config & PERF_BPF_PMU_CUTS)
		perf_aux_output_flag(&handle, PERF_AUX_FLAG_TRUNCATED);
	perf_aux_output_end(&handle, handle.size);
}

/* With @is_overflow it is an overflow, otherwise only a record in the ring. */
static void write_record(struct perf_event *event, struct pt_regs *regs, u64 period,
			 bool is_overflow)
{
	struct perf_sample_data data;

	/* As on a used stack, so that a field that is not initialised is not 0 by chance. */
	memset(&data, 0xa5, sizeof(data));
	perf_sample_data_init(&data, 0, period);
	if (event->hw.config & PERF_BPF_PMU_CALLCHAIN)
		save_callchain(&data, event, regs);
	if (!is_overflow)
		event_output(event, &data, regs);
	else if (event_overflow(event, &data, regs))
		pmu_stop(event, 0);
	if (event->hw.config & PERF_BPF_PMU_TRACE)
		fill_aux_area(event);
}

/* Like __intel_pmu_pebs_events(): the last record is an overflow if the batch interrupts. */
static void drain(struct perf_event *event, struct batch *batch, bool interrupts)
{
	unsigned int records = xchg(&batch->records, 0), i;

	for (i = 0; i < records; i++)
		write_record(event, &batch->regs[i], event->hw.last_period,
			     interrupts && i == records - 1);
}

/* Adds @n to the event's count, which may overflow. */
static void count(struct perf_event *event, u64 n, struct pt_regs *regs)
{
	struct hw_perf_event *hwc = &event->hw;
	struct pt_regs copy;
	u64 last_period;

	if (hwc->config & PERF_BPF_PMU_COPY) {
		/* An NMI may interrupt a write of other flags. */
		if (!current->mm || data_race(current->flags) & PF_KTHREAD)
			return;
		copy = *task_pt_regs(current);
		regs = &copy;
	}
	if (user_mode(regs) ? event->attr.exclude_user : event->attr.exclude_kernel)
		return;

	local64_add(n, &event->count);
	if (is_sampling_event(event) && local64_sub_return(n, &hwc->period_left) > 0)
		return;

	/* An event that does not sample overflows as well, as if the counter were very narrow. */

	last_period = hwc->last_period;
	hwc->last_period = hwc->sample_period;
	local64_set(&hwc->period_left, hwc->sample_period);
	if (hwc->config & PERF_BPF_PMU_BATCH) {
		struct batch *batch = &this_cpu_ptr(&cpu_counters)->batches[hwc->idx];
		unsigned int record = batch->records;

		batch->regs[record] = *regs;
		batch->records = record + 1;
		if (record == BATCH - 1)
			drain(event, batch, true);
	} else {
		write_record(event, regs, last_period, true);
	}
}

/* Adds @n to all counters of this CPU whose PERF_BPF_PMU_CLOCK bit is that of @config. */
static void count_all(u64 config, u64 n, struct pt_regs *regs)
{
	struct cpu_counters *cpu = this_cpu_ptr(&cpu_counters);
	int i;

	for (i = 0; i < COUNTERS && !cpu->disabled; i++) {
		struct perf_event *event = READ_ONCE(cpu->events[i]);

		if (event && !(event->hw.state & PERF_HES_STOPPED) &&
		    (event->hw.config & PERF_BPF_PMU_CLOCK) == config)
			count(event, n, regs);
	}
}

/* Counts the hits that raise() has requested, and returns their number. */
static int take(enum context context, struct pt_regs *regs)
{
	int hits = atomic_xchg(this_cpu_ptr(&cpu_counters.pending[context]), 0);
	int i;

	for (i = 0; i < hits; i++)
		count_all(0, 1, regs);
	return hits;
}

static enum hrtimer_restart on_irq_timer(struct hrtimer *timer)
{
	take(IRQ, get_irq_regs());
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart on_tick(struct hrtimer *timer)
{
	struct cpu_counters *cpu = this_cpu_ptr(&cpu_counters);
	bool used = false;
	int i;

	for (i = 0; i < COUNTERS; i++)
		used |= cpu->events[i] && cpu->events[i]->hw.config & PERF_BPF_PMU_CLOCK;
	if (!used)
		return HRTIMER_NORESTART;
	count_all(PERF_BPF_PMU_CLOCK, TICK, get_irq_regs());
	hrtimer_forward_now(timer, ns_to_ktime(TICK));
	return HRTIMER_RESTART;
}

#ifdef CONFIG_X86_LOCAL_APIC
static int on_nmi(unsigned int cmd, struct pt_regs *regs)
{
	return take(NMI, regs) ? NMI_HANDLED : NMI_DONE;
}

static int hook_nmi(void)
{
	return register_nmi_handler(NMI_LOCAL, on_nmi, 0, KBUILD_MODNAME);
}

static void unhook_nmi(void)
{
	unregister_nmi_handler(NMI_LOCAL, KBUILD_MODNAME);
}

static int send_nmi(int cpu)
{
	apic->send_IPI(cpu, NMI_VECTOR);
	return 0;
}
#else
#define send_nmi NULL

static int hook_nmi(void)
{
	return 0;
}

static void unhook_nmi(void)
{
}
#endif

/* Makes the hits in task context, with interrupts off. */
static int take_in_task(int cpu)
{
	struct pt_regs regs;
	unsigned long flags;

	if (cpu != smp_processor_id())
		return -EINVAL;
	local_irq_save(flags);
	perf_fetch_caller_regs(&regs);
	take(TASK, &regs);
	local_irq_restore(flags);
	return 0;
}

static void start_irq_timer(void *unused)
{
	hrtimer_start(this_cpu_ptr(&cpu_counters.irq_timer), 0, HRTIMER_MODE_REL_PINNED_HARD);
}

/* Uses a timer, because not all interrupts store their registers for get_irq_regs(). */
static int send_irq(int cpu)
{
	return smp_call_function_single(cpu, start_irq_timer, NULL, true);
}

/* A context without a send function has no file. */
static const struct {
	const char *name;
	int (*send)(int cpu);
} contexts[CONTEXTS] = {
	[NMI]	= { "nmi", send_nmi },
	[IRQ]	= { "irq", send_irq },
	[TASK]	= { "task", take_in_task },
};

/* Sends no interrupt while one is pending: that one takes all hits, the next would be spurious. */
static int raise(enum context context, unsigned int hits, int cpu)
{
	atomic_t *pending;
	int err = 0;

	if (cpu < 0)
		cpu = smp_processor_id();
	else if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -EINVAL;
	pending = per_cpu_ptr(&cpu_counters.pending[context], cpu);
	if (atomic_fetch_add(hits, pending) == 0) {
		err = contexts[context].send(cpu);
		if (err)
			atomic_set(pending, 0);
	}
	while (atomic_read(pending))
		cpu_relax();
	return err;
}

static ssize_t hit(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	unsigned int hits;
	char text[32] = "";
	int cpu = -1, err;

	if (size >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, size))
		return -EFAULT;
	if (sscanf(text, "%u %d", &hits, &cpu) < 1 || !hits || hits > INT_MAX)
		return -EINVAL;

	cpus_read_lock();
	preempt_disable();
	err = raise((long)file->private_data, hits, cpu);
	preempt_enable();
	cpus_read_unlock();
	return err ?: size;
}

static const struct file_operations hit_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.write	= hit,
};

#ifdef CONFIG_X86_LOCAL_APIC
static DEFINE_MUTEX(in_mutex);
static char in_name[KSYM_NAME_LEN];
static atomic_t in_armed;

static int on_call(struct kprobe *probe, struct pt_regs *regs)
{
	if (atomic_xchg(&in_armed, 0))
		raise(NMI, 1, -1);
	return 0;
}

static struct kprobe in_function = { .pre_handler = on_call };

static void forget_function(void)
{
	if (in_function.symbol_name)
		unregister_kprobe(&in_function);
	in_function = (struct kprobe){ .pre_handler = on_call };
}

static ssize_t nmi_in(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	int err;

	if (size >= sizeof(in_name))
		return -EINVAL;
	mutex_lock(&in_mutex);
	forget_function();
	memset(in_name, 0, sizeof(in_name));
	if (copy_from_user(in_name, from, size)) {
		err = -EFAULT;
		goto out;
	}
	strim(in_name);
	in_function.symbol_name = in_name;
	err = register_kprobe(&in_function);
	if (err)
		in_function.symbol_name = NULL;
	else
		atomic_set(&in_armed, 1);
out:
	mutex_unlock(&in_mutex);
	return err ?: size;
}

static const struct file_operations nmi_in_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.write	= nmi_in,
};

static void add_nmi_in(struct dentry *dir)
{
	debugfs_create_file("nmi_in", 0200, dir, NULL, &nmi_in_fops);
}
#else
static void forget_function(void)
{
}

static void add_nmi_in(struct dentry *dir)
{
}
#endif

#ifdef CONFIG_X86
/* Functions of arch/x86/kernel/hw_breakpoint.c that are not exported to modules. */
static typeof(arch_install_hw_breakpoint) *install;
static typeof(arch_uninstall_hw_breakpoint) *uninstall;

static DEFINE_MUTEX(kgdb_mutex);
static long kgdb_word;
static unsigned int kgdb_hits;

static void on_kgdb_hit(struct perf_event *event, struct perf_sample_data *data,
			struct pt_regs *regs)
{
	kgdb_hits++;
}

/*
 * As in arch/x86/kernel/kgdb.c: the event reserves a slot and stays disabled, because kgdb cannot
 * ask the perf core to enable it while the other CPUs are stopped. It installs the event itself.
 */
static int kgdb_show(struct seq_file *file, void *unused)
{
	struct perf_event * __percpu *events, *event;
	struct perf_event_attr attr;
	unsigned long flags;
	int err;

	hw_breakpoint_init(&attr);
	attr.bp_addr = (unsigned long)&kgdb_word;
	attr.bp_len = sizeof(kgdb_word);
	attr.bp_type = HW_BREAKPOINT_W;
	attr.disabled = 1;

	mutex_lock(&kgdb_mutex);
	events = register_wide_hw_breakpoint(&attr, on_kgdb_hit, NULL);
	err = PTR_ERR_OR_ZERO((void __force *)events);
	if (err)
		goto out;

	kgdb_hits = 0;
	local_irq_save(flags);
	event = *this_cpu_ptr(events);
	err = install(event);
	if (!err) {
		WRITE_ONCE(kgdb_word, 1);
		uninstall(event);
	}
	local_irq_restore(flags);
	unregister_wide_hw_breakpoint(events);
	if (!err)
		seq_printf(file, "%u\n", READ_ONCE(kgdb_hits));
out:
	mutex_unlock(&kgdb_mutex);
	return err;
}
DEFINE_SHOW_ATTRIBUTE(kgdb);

static void add_kgdb(struct dentry *dir)
{
	install = find("arch_install_hw_breakpoint");
	uninstall = find("arch_uninstall_hw_breakpoint");
	if (install && uninstall)
		debugfs_create_file("kgdb", 0400, dir, NULL, &kgdb_fops);
}
#else
static void add_kgdb(struct dentry *dir)
{
}
#endif

static int pmu_add(struct perf_event *event, int flags)
{
	struct cpu_counters *cpu = this_cpu_ptr(&cpu_counters);
	int i;

	for (i = 0; i < COUNTERS && cpu->events[i]; i++)
		;
	if (i == COUNTERS)
		return -EAGAIN;
	event->hw.idx = i;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		pmu_start(event, PERF_EF_RELOAD);
	WRITE_ONCE(cpu->events[i], event);
	if (event->hw.config & PERF_BPF_PMU_CLOCK && !hrtimer_active(&cpu->tick))
		hrtimer_start(&cpu->tick, ns_to_ktime(TICK), HRTIMER_MODE_REL_PINNED_HARD);
	return 0;
}

static void pmu_del(struct perf_event *event, int flags)
{
	struct cpu_counters *cpu = this_cpu_ptr(&cpu_counters);

	pmu_stop(event, PERF_EF_UPDATE);
	WRITE_ONCE(cpu->events[event->hw.idx], NULL);
	drain(event, &cpu->batches[event->hw.idx], false);
}

/* The count is always up to date. */
static void pmu_read(struct perf_event *event)
{
}

static void pmu_enable(struct pmu *pmu)
{
	WRITE_ONCE(this_cpu_ptr(&cpu_counters)->disabled, false);
}

static void pmu_disable(struct pmu *pmu)
{
	WRITE_ONCE(this_cpu_ptr(&cpu_counters)->disabled, true);
}

/* The core requires something to free. */
static void *pmu_setup_aux(struct perf_event *event, void **pages, int nr_pages, bool overwrite)
{
	return kmalloc(1, GFP_KERNEL);
}

static void pmu_free_aux(void *aux)
{
	kfree(aux);
}

static int pmu_event_init(struct perf_event *event)
{
	u64 config = event->attr.config;

	if (event->attr.type == PERF_TYPE_HARDWARE) {
		if (config != PERF_COUNT_HW_CPU_CYCLES && config != PERF_COUNT_HW_INSTRUCTIONS)
			return -ENOENT;
		config = PERF_BPF_PMU_CLOCK;
	} else if (event->attr.type != event->pmu->type) {
		return -ENOENT;
	}
	if (config >= PERF_BPF_PMU_CONFIGS)
		return -EINVAL;
	/* The same conditions as in intel_pmu_hw_config(). */
	if (event->attr.freq || (event->attr.wakeup_events && !event->attr.watermark) ||
	    !is_sampling_event(event))
		config &= ~PERF_BPF_PMU_BATCH;
	event->hw.config = config;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
	if (config & PERF_BPF_PMU_CALLCHAIN && event->attr.sample_type & PERF_SAMPLE_CALLCHAIN)
		event->attr.sample_type |= __PERF_SAMPLE_CALLCHAIN_EARLY;
#endif
	return 0;
}

static struct pmu bpf_pmu = {
	.module		= THIS_MODULE,
	.task_ctx_nr	= perf_hw_context,
#ifdef PERF_PMU_CAP_HETEROGENEOUS_CPUS
	/* Before 6.2, another PMU could not share or later use perf_hw_context without this. */
	.capabilities	= PERF_PMU_CAP_HETEROGENEOUS_CPUS,
#else
	.capabilities	= PERF_PMU_CAP_AUX_PAUSE,
#endif
	.pmu_enable	= pmu_enable,
	.pmu_disable	= pmu_disable,
	.event_init	= pmu_event_init,
	.add		= pmu_add,
	.del		= pmu_del,
	.start		= pmu_start,
	.stop		= pmu_stop,
	.read		= pmu_read,
	.setup_aux	= pmu_setup_aux,
	.free_aux	= pmu_free_aux,
};

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define VISITOR "perf_bpf_visitor"

static int visitor_event_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	return is_sampling_event(event) ? -EINVAL : 0;
}

static int visitor_add(struct perf_event *event, int flags)
{
	return 0;
}

static void visitor_stop(struct perf_event *event, int flags)
{
}

static const struct pmu visitor_template = {
	.module		= THIS_MODULE,
	.task_ctx_nr	= perf_sw_context,
	.event_init	= visitor_event_init,
	.add		= visitor_add,
	.del		= visitor_stop,
	.start		= visitor_stop,
	.stop		= visitor_stop,
	.read		= pmu_read,
};
static struct pmu visitor;
static DEFINE_MUTEX(visitor_mutex);
static bool visitor_registered;

static ssize_t visitor_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	bool add;
	int err = kstrtobool_from_user(from, size, &add);

	if (err)
		return err;
	guard(mutex)(&visitor_mutex);
	if (add == visitor_registered)
		return add ? -EEXIST : -ENODEV;
	/* A fresh copy: after an earlier registration the struct still has its device. */
	if (add)
		visitor = visitor_template;
	err = add ? perf_pmu_register(&visitor, VISITOR, -1) : perf_pmu_unregister(&visitor);
	if (err)
		return err;
	visitor_registered = add;
	return size;
}

static const struct file_operations visitor_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.write	= visitor_write,
};

static void add_visitor(struct dentry *dir)
{
	debugfs_create_file("visitor", 0200, dir, NULL, &visitor_fops);
}

static void unregister_visitor(void)
{
	if (visitor_registered)
		perf_pmu_unregister(&visitor);
}
#else
static void add_visitor(struct dentry *dir)
{
}

static void unregister_visitor(void)
{
}
#endif

/* Any error other than ENOENT comes from a PMU. */
static bool machine_has_pmu(void)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_HARDWARE,
		.config		= PERF_COUNT_HW_CPU_CYCLES,
		.size		= sizeof(attr),
		.disabled	= 1,
	};
	struct perf_event *event;

	event = perf_event_create_kernel_counter(&attr, cpumask_first(cpu_online_mask), NULL,
						 NULL, NULL);
	if (IS_ERR(event))
		return PTR_ERR(event) != -ENOENT;
	perf_event_release_kernel(event);
	return true;
}

/*
 * Events that keep perf_sched_events and perf_swevent_enabled[] enabled: a task event of each kind
 * of software event.
 */
static struct perf_event *held[PERF_COUNT_SW_MAX];

static void release_held(void)
{
	int i;

	for (i = 0; i < PERF_COUNT_SW_MAX; i++)
		if (!IS_ERR_OR_NULL(held[i]))
			perf_event_release_kernel(held[i]);
}

static int hold_static_keys(void)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= sizeof(attr),
		.disabled	= 1,
	};
	int i;

	for (i = 0; i < PERF_COUNT_SW_MAX; i++) {
		attr.config = i;
		held[i] = perf_event_create_kernel_counter(&attr, -1, current, NULL, NULL);
		if (IS_ERR(held[i])) {
			release_held();
			return PTR_ERR(held[i]);
		}
	}
	return 0;
}

static void setup_timer(struct hrtimer *timer, enum hrtimer_restart (*fn)(struct hrtimer *))
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = fn;
#else
	hrtimer_setup(timer, fn, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#endif
}

static struct dentry *dir;

static int __init perf_bpf_pmu_init(void)
{
	int cpu, err;
	long i;

	if (!force && machine_has_pmu()) {
		pr_err("this machine has a PMU; load with force=1 to add this one\n");
		return -EBUSY;
	}
	event_overflow = find("perf_event_overflow");
	event_output = find("perf_event_output");
	callchain = find("perf_callchain");
	if (!event_overflow || !event_output || !callchain)
		return -ENOENT;

	for_each_possible_cpu(cpu) {
		setup_timer(&per_cpu_ptr(&cpu_counters, cpu)->irq_timer, on_irq_timer);
		setup_timer(&per_cpu_ptr(&cpu_counters, cpu)->tick, on_tick);
	}

	err = hold ? hold_static_keys() : 0;
	if (err)
		return err;
	err = hook_nmi();
	if (err)
		goto release;
	err = perf_pmu_register(&bpf_pmu, KBUILD_MODNAME, -1);
	if (err)
		goto unhook;
	dir = debugfs_create_dir(KBUILD_MODNAME, NULL);
	for (i = 0; i < CONTEXTS; i++)
		if (contexts[i].send)
			debugfs_create_file(contexts[i].name, 0200, dir, (void *)i, &hit_fops);
	add_nmi_in(dir);
	add_kgdb(dir);
	add_visitor(dir);
	return 0;

unhook:
	unhook_nmi();
release:
	release_held();
	return err;
}

static void __exit perf_bpf_pmu_exit(void)
{
	int cpu;

	debugfs_remove_recursive(dir);
	forget_function();
	unregister_visitor();
	perf_pmu_unregister(&bpf_pmu);
	unhook_nmi();
	for_each_possible_cpu(cpu) {
		hrtimer_cancel(&per_cpu_ptr(&cpu_counters, cpu)->irq_timer);
		hrtimer_cancel(&per_cpu_ptr(&cpu_counters, cpu)->tick);
	}
	release_held();
}

module_init(perf_bpf_pmu_init);
module_exit(perf_bpf_pmu_exit);
MODULE_DESCRIPTION("A hardware PMU without hardware, for the tests of perf_bpf_filter");
MODULE_LICENSE("GPL");
