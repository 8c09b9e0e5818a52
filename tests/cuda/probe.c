/* Allocates memory of each card that CUDA shows until it is refused, and keeps it until its standard input ends.
 *
 * It prints a line with a word for each card, `MiB:total:multiprocessors:UUID`: what it got, and what CUDA says of the
 * card. Arguments: the step in MiB, and the most MiB of each card. */
#include <stdio.h>
#include <stdlib.h>

#define MULTIPROCESSOR_COUNT 16

int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDeviceGet(int *, int);
int cuDeviceGetUuid(unsigned char *, int);
int cuDeviceGetAttribute(int *, int, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemAlloc_v2(unsigned long long *, size_t);

static int show(int ordinal, unsigned long long step, unsigned long long most)
{
	int device, processors, result;
	unsigned char uuid[16];
	size_t unused, total;
	void *context;
	unsigned long long mib = 0, pointer;
	if ((result = cuDeviceGet(&device, ordinal)) || (result = cuDeviceGetUuid(uuid, device)) ||
	    (result = cuDeviceGetAttribute(&processors, MULTIPROCESSOR_COUNT, device)) ||
	    (result = cuDevicePrimaryCtxRetain(&context, device)) || (result = cuCtxSetCurrent(context)) ||
	    (result = cuMemGetInfo_v2(&unused, &total)))
		return result;
	while (mib + step <= most && !cuMemAlloc_v2(&pointer, step << 20))
		mib += step;
	printf("%s%llu:%llu:%d:", ordinal ? " " : "", mib, (unsigned long long)total >> 20, processors);
	for (int byte = 0; byte < 16; byte++)
		printf("%s%02x", byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "", uuid[byte]);
	return 0;
}

int main(int count, char **arguments)
{
	int cards = 0, result = cuInit(0);
	unsigned long long step = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
	unsigned long long most = count > 2 ? strtoull(arguments[2], NULL, 10) : ~0ull >> 1;
	if (result) {
		printf("cuInit: error %d\n", result);
		return 1;
	}
	cuDeviceGetCount(&cards);
	for (int ordinal = 0; ordinal < cards && !result; ordinal++)
		result = show(ordinal, step, most);
	if (result) {
		printf("card: error %d\n", result);
		return 1;
	}
	printf("\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
