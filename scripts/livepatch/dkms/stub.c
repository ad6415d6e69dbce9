// SPDX-License-Identifier: GPL-2.0
/* Installed in place of a live patch that could not be built. */
#include <linux/module.h>
#include "why.h"

static int __init stub_init(void)
{
	pr_warn("%s: no live patch for this kernel: %s\n", KBUILD_MODNAME, WHY);
	return -ENODEV;
}

module_init(stub_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Prints why there is no live patch for this kernel");
