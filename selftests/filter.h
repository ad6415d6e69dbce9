/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs in filter.bpf.c can be asked to look at before they give their verdict. */
#ifndef FILTER_H
#define FILTER_H

enum filter_condition {
	FILTER_ALWAYS,
	FILTER_ARGUMENT, /* the first argument of the function that was hit */
	FILTER_ADDRESS, /* ctx->addr, which for a breakpoint is attr.bp_addr */
};

#endif
