/* A stub of CUDA's driver library: it only counts memory, of cards that the environment describes.
 *
 * STUB_CARDS    the cards that the container runtime gave the process, `uuid:MiB,uuid:MiB`, in the order of the node
 * STUB_STATE    a folder in which the processes of a node count what they allocate
 * STUB_CGROUP   the control group of the process: what the driver limits, if the file `limit.<cgroup>` has MiB for it
 *
 * As the driver, it obeys CUDA_VISIBLE_DEVICES, by indexes or UUIDs up to the first that is not there. A process is a
 * client of MPS if the socket or pipe `control` exists in CUDA_MPS_PIPE_DIRECTORY; each client is limited by itself, by
 * CUDA_MPS_PINNED_DEVICE_MEM_LIMIT and the ordinals that CUDA shows, none of which may be missing, and sees as many
 * multiprocessors as CUDA_MPS_ACTIVE_THREAD_PERCENTAGE leaves it. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARDS 16
#define MULTIPROCESSORS 100
#define MULTIPROCESSOR_COUNT 16
#define NAME 96
#define PATH 1024
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define NOT_INITIALIZED 3
#define NO_DEVICE 100
#define INVALID_DEVICE 101

typedef struct {
	char uuid[NAME];
	unsigned long long total, own;
} Card;

static Card cards[CARDS];
static int count = -1, current = 0;
static const char *state, *cgroup;

static int parse(const char *text, Card *found)
{
	char copy[4096];
	int number = 0;
	snprintf(copy, sizeof copy, "%s", text ? text : "");
	for (char *rest = copy, *entry; number < CARDS && (entry = strsep(&rest, ",")) && *entry; number++) {
		char *mib = strrchr(entry, ':');
		if (!mib)
			break;
		*mib++ = 0;
		snprintf(found[number].uuid, NAME, "%s", entry);
		found[number].total = strtoull(mib, NULL, 10) << 20;
	}
	return number;
}

static void choose(const char *visible, const Card *all, int number)
{
	char copy[4096];
	snprintf(copy, sizeof copy, "%s", visible);
	for (char *rest = copy, *entry; count < CARDS && (entry = strsep(&rest, ",")) && *entry; count++) {
		char *end;
		long index = strtol(entry, &end, 10);
		if (*end)
			for (index = 0; index < number && strcmp(all[index].uuid, entry); index++)
				;
		if (index < 0 || index >= number)
			break;
		cards[count] = all[index];
	}
}

static void usage_file(const Card *card, char *path)
{
	snprintf(path, PATH, "%s/used.%s.%s.%d", state, card->uuid, cgroup, (int)getpid());
}

static void forget(void)
{
	char path[PATH];
	for (int index = 0; index < count; index++) {
		usage_file(&cards[index], path);
		unlink(path);
	}
}

int cuInit(unsigned flags)
{
	Card all[CARDS];
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	(void)flags;
	if (count >= 0)
		return count ? 0 : NO_DEVICE;
	state = getenv("STUB_STATE");
	cgroup = getenv("STUB_CGROUP") ? getenv("STUB_CGROUP") : "root";
	if (!state)
		return NOT_INITIALIZED;
	count = 0;
	memset(all, 0, sizeof all);
	int number = parse(getenv("STUB_CARDS"), all);
	if (visible)
		choose(visible, all, number);
	else
		memcpy(cards, all, sizeof all), count = number;
	atexit(forget);
	return count ? 0 : NO_DEVICE;
}

static unsigned long long number_in(const char *path)
{
	unsigned long long number = 0;
	FILE *file = fopen(path, "r");
	if (file) {
		if (fscanf(file, "%llu", &number) != 1)
			number = 0;
		fclose(file);
	}
	return number;
}

/* The bytes that all processes use of a card, or those of one control group. */
static unsigned long long used(const Card *card, const char *group)
{
	char prefix[PATH], path[2 * PATH];
	unsigned long long sum = 0;
	DIR *folder = opendir(state);
	snprintf(prefix, sizeof prefix, group ? "used.%s.%s." : "used.%s.", card->uuid, group);
	for (struct dirent *entry; folder && (entry = readdir(folder));)
		if (!strncmp(entry->d_name, prefix, strlen(prefix))) {
			snprintf(path, sizeof path, "%s/%s", state, entry->d_name);
			sum += number_in(path);
		}
	if (folder)
		closedir(folder);
	return sum;
}

static unsigned long long limit_of_cgroup(void)
{
	char path[PATH];
	snprintf(path, sizeof path, "%s/limit.%s", state, cgroup);
	return number_in(path) << 20;
}

static int is_client(void)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[PATH];
	snprintf(path, sizeof path, "%s/control", folder ? folder : "/tmp/nvidia-mps");
	return !access(path, F_OK);
}

/* The limit of this client of MPS on the current card, 0 for none. */
static unsigned long long limit_of_client(void)
{
	const char *limits = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	char copy[4096];
	if (!is_client() || !limits)
		return 0;
	snprintf(copy, sizeof copy, "%s", limits);
	unsigned long long found = 0;
	for (char *rest = copy, *entry; (entry = strsep(&rest, ","));) {
		int ordinal;
		unsigned long long amount;
		char unit;
		if (sscanf(entry, "%d=%llu%c", &ordinal, &amount, &unit) != 3)
			continue;
		if (ordinal >= count) /* it names a card that the process does not see: no limit holds */
			return 0;
		if (ordinal == current)
			found = amount << (unit == 'G' ? 30 : 20);
	}
	return found;
}

int cuDeviceGetCount(int *number)
{
	*number = count < 0 ? 0 : count;
	return count < 0 ? NOT_INITIALIZED : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
	if (ordinal < 0 || ordinal >= count)
		return INVALID_DEVICE;
	*device = ordinal;
	return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device)
{
	const char *digits = cards[device].uuid + strlen("GPU-");
	for (int byte = 0; byte < 16; byte++, digits += 2) {
		while (*digits == '-')
			digits++;
		if (sscanf(digits, "%2hhx", &uuid[byte]) != 1) { /* a card of a lab, whose name has no number */
			memset(uuid + byte, 0, 16 - byte);
			return 0;
		}
	}
	return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	const char *percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	if (attribute != MULTIPROCESSOR_COUNT || device >= count)
		return INVALID_VALUE;
	*value = is_client() && percentage ? MULTIPROCESSORS * atoi(percentage) / 100 : MULTIPROCESSORS;
	return 0;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	*total = cards[current].total;
	*unused = *total - used(&cards[current], NULL);
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = &cards[device];
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	current = (int)((Card *)context - cards);
	return 0;
}

int cuCtxGetDevice(int *device)
{
	*device = current;
	return 0;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
	static unsigned long long next = 0x700000000000ull;
	Card *card = &cards[current];
	unsigned long long client = limit_of_client(), group = limit_of_cgroup();
	char path[2 * PATH];
	if (count <= current || !bytes)
		return INVALID_VALUE;
	snprintf(path, sizeof path, "%s/lock", state);
	int lock = open(path, O_CREAT | O_RDWR, 0666);
	flock(lock, LOCK_EX);
	int refused = used(card, NULL) + bytes > card->total || (client && card->own + bytes > client) ||
		      (group && used(card, cgroup) + bytes > group);
	if (!refused) {
		char own[PATH];
		usage_file(card, own);
		FILE *file = fopen(own, "w");
		fprintf(file, "%llu", card->own += bytes);
		fclose(file);
		*pointer = next;
		next += bytes;
	}
	close(lock);
	return refused ? OUT_OF_MEMORY : 0;
}
