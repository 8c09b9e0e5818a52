/* A stand-in for HAMi-core: it limits allocations as HAMi-core reads its variables, and does nothing else of it.
 *
 * It also shows the limit as the memory of the card.
 *
 * CUDA_DEVICE_MEMORY_LIMIT_<i>, or else CUDA_DEVICE_MEMORY_LIMIT, limits the card with ordinal i; 0 and an empty text do
 * not. CUDA_VISIBLE_DEVICES is a list of numbers: a UUID is 0, so that several cards share one count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARDS 16
#define OUT_OF_MEMORY 2

static unsigned long long used[CARDS];

static unsigned long long limit(int ordinal)
{
	char name[64];
	snprintf(name, sizeof name, "CUDA_DEVICE_MEMORY_LIMIT_%d", ordinal);
	const char *text = getenv(name);
	if (!text || !*text)
		text = getenv("CUDA_DEVICE_MEMORY_LIMIT");
	return text ? strtoull(text, NULL, 10) << 20 : 0;
}

static int position(int ordinal)
{
	char copy[4096];
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	snprintf(copy, sizeof copy, "%s", visible ? visible : "");
	char *rest = copy, *entry = NULL;
	for (int each = 0; each <= ordinal && (entry = strsep(&rest, ",")); each++)
		;
	return entry ? atoi(entry) % CARDS : ordinal;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	int (*get)(int *) = (int (*)(int *))dlsym(RTLD_NEXT, "cuCtxGetDevice");
	int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(RTLD_NEXT, "cuMemGetInfo_v2");
	int ordinal = 0, result = info(unused, total);
	get(&ordinal);
	if (!result && limit(ordinal)) {
		*total = limit(ordinal);
		*unused = *total - used[position(ordinal)];
	}
	return result;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
	int (*get)(int *) = (int (*)(int *))dlsym(RTLD_NEXT, "cuCtxGetDevice");
	int (*allocate)(unsigned long long *, size_t) =
		(int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	int ordinal = 0;
	get(&ordinal);
	unsigned long long most = limit(ordinal);
	int place = position(ordinal);
	if (most && used[place] + bytes > most)
		return OUT_OF_MEMORY;
	int result = allocate(pointer, bytes);
	if (!result)
		used[place] += bytes;
	return result;
}
