// SPDX-License-Identifier: GPL-2.0
#include "tracee.h"

long in_library(long i)
{
	return i + 1;
}
