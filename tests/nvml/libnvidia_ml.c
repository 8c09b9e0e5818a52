/*
 * A stub with NVML's binary interface that reads a text file instead of a driver. It has only the functions that the
 * agent calls.
 *
 * $NVML_STUB_STATE names the file. Each call reads it again, so that a test can change the hardware while an agent runs.
 * The file has one directive per line. Before the first card:
 *
 *     driver VERSION
 *     error FUNCTION CODE             nvmlInitWithFlags, nvmlDeviceGetCount_v2, nvmlEventSetWait_v2 …
 *
 * and then for each card, in the order of the indexes:
 *
 *     card UUID
 *     name TEXT                       until the end of the line
 *     memory BYTES
 *     pci BUS_ID                      DOMAIN:BUS:DEVICE.FUNCTION, hexadecimal
 *     numa NODE | ecc COUNT | mig 0|1 | recovery ACTION
 *     profile NUMBER ID SLICES MEMORY_MB NAME       a MIG profile, by NVML's number and its ID on the card
 *     place ID START SIZE                           a possible placement of profile ID
 *     link NUMBER gpu|switch|unknown BUS_ID MBPS    an active NVLink
 *     fields old|none                 the driver reports only one speed for all links | no speed
 *     nvlink VERSION                  NVML's number of the version of its links
 *     topology NODE BRIDGE SWITCHES SWITCH    its place on PCIe, by numbers for all cards: its NUMA node, its host bridge,
 *                                     the switches below it, and the last of them
 *     used BYTES | busy PERCENT       its used memory, and its utilization; -1: not supported
 *     process PID BYTES compute|mps|graphics UUID    a process on the card or the MIG device UUID; BYTES -1: unknown
 *     sample PID PERCENT TIMESTAMP    the utilization by a process, in µs; `samples none`: not supported
 *     limit CGROUP HARD USED          the driver's memory limit of a cgroup, and what it has counted there
 *     event ID xid|dbe DATA           IDs grow; each is delivered once per event set that existed before
 *     error FUNCTION CODE             FUNCTION may be *
 *     hang FUNCTION                   the call does not return while this directive exists
 *
 * Limits that are set are lines of $NVML_STUB_STATE.limits: card, cgroup, soft and hard limit in MiB.
 *
 * MIG instances are lines of another file, $NVML_STUB_STATE.instances; calls that create and destroy instances change it:
 *
 *     CARD GPU_INSTANCE COMPUTE_INSTANCE PROFILE_ID START SIZE UUID       COMPUTE_INSTANCE is -1 before its creation
 *
 * As in the real library the set of cards is that of nvmlInit: a card that has disappeared since is lost, and one that
 * has appeared since is not listed before the next nvmlInit.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23,
    UNKNOWN = 999,
};
enum { TYPE_GPU = 0, TYPE_SWITCH = 2, TYPE_UNKNOWN = 255 };
enum { LEVEL_SYSTEM = 50, LEVEL_STEP = 10, MAX_LEVELS = 4 };
enum { FIELD_SPEED_COMMON = 90, FIELD_GET_SPEED = 164, FIELD_RECOVERY_ACTION = 230 };
enum { VALUE_UNSIGNED_INT = 1 };
enum { EVENT_DOUBLE_BIT = 2, EVENT_XID = 8 };
enum { MAX_PROCESSES = 32, MAX_SAMPLES = 64, MAX_LIMITS = 8 };
enum { MAX_CARDS = 16, MAX_LINKS = 18, MAX_ERRORS = 16, MAX_EVENTS = 64, POLL_MS = 5 };
enum { MAX_PROFILES = 8, MAX_PLACES = 8, MAX_INSTANCES = 32 };

typedef int nvmlReturn_t;

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned int valueType;
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        unsigned int uiVal;
        unsigned long long ullVal;
    } value;
} nvmlFieldValue_t;

/* A handle is the UUID of a card or a MIG device, so it does not depend on other devices. */
typedef struct {
    char uuid[96];
} *nvmlDevice_t;

typedef struct {
    unsigned int start, size;
} nvmlGpuInstancePlacement_t;

typedef struct {
    unsigned int id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
    unsigned int version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount,
        decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct {
    unsigned int id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
    unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

/* The handle of a GPU instance and of its compute instance: the card, and the GPU instance on it. */
typedef struct {
    char card[96];
    unsigned int id;
} *nvmlGpuInstance_t;

typedef struct {
    nvmlDevice_t device;
    unsigned int id, profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

typedef struct {
    unsigned long long types[MAX_CARDS];
    long seen;
} *nvmlEventSet_t;

typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;

typedef struct {
    char kind[16], uuid[96];
    nvmlProcessInfo_t info;
} Process;

typedef struct {
    char cgroup[224];
    unsigned long long hard, used;
} Limit;

typedef struct {
    char function[64];
    int code; /* 0: the call hangs */
} Fault;

typedef struct {
    int active, type;
    char remote[32];
    unsigned int mbps;
} Link;

typedef struct {
    unsigned int number, id, slices;
    unsigned long long memory_mb;
    char name[64];
    nvmlGpuInstancePlacement_t places[MAX_PLACES];
    unsigned int place_count;
} Profile;

/* A GPU instance; `compute` is the number of its compute instance, -1 before its creation. */
typedef struct {
    char card[96], uuid[96];
    unsigned int id, profile, start, size;
    int compute;
} Instance;

typedef struct {
    char uuid[96], name[96], pci[32];
    unsigned long long memory, ecc;
    int numa, mig, old_fields, no_fields;
    unsigned int recovery, nvlink_version;
    int place[MAX_LEVELS], has_place; /* on PCIe, from the NUMA node to the last switch */
    Link links[MAX_LINKS];
    Fault faults[MAX_ERRORS];
    int fault_count;
    Profile profiles[MAX_PROFILES];
    int profile_count;
    unsigned long long used;
    int busy, no_samples;
    Process processes[MAX_PROCESSES];
    int process_count;
    nvmlProcessUtilizationSample_t samples[MAX_SAMPLES];
    int sample_count;
    Limit limits[MAX_LIMITS];
    int limit_count;
} Card;

typedef struct {
    long id;
    int card;
    unsigned long long type, data;
} Event;

typedef struct {
    char driver[80];
    Fault faults[MAX_ERRORS];
    int fault_count;
    Card cards[MAX_CARDS];
    int card_count;
    Event events[MAX_EVENTS];
    int event_count;
    Instance instances[MAX_INSTANCES];
    int instance_count;
} State;

static struct {
    char uuid[96];
} known[MAX_CARDS];
static int known_count;
static int initialized;

static void pause_ms(int milliseconds) {
    struct timespec duration = {0, milliseconds * 1000000L};
    nanosleep(&duration, NULL);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void parse_profile(Card *card, const char *line) {
    nvmlGpuInstancePlacement_t place;
    unsigned int id;
    Profile *profile = &card->profiles[card->profile_count];
    if (card->profile_count < MAX_PROFILES && sscanf(line, "profile %u %u %u %llu %63s", &profile->number, &profile->id,
                                                     &profile->slices, &profile->memory_mb, profile->name) == 5)
        card->profile_count++;
    if (sscanf(line, "place %u %u %u", &id, &place.start, &place.size) == 3)
        for (int i = 0; i < card->profile_count; i++)
            if (card->profiles[i].id == id && card->profiles[i].place_count < MAX_PLACES)
                card->profiles[i].places[card->profiles[i].place_count++] = place;
}

static FILE *open_instances(const char *mode) {
    char path[4096];
    const char *state = getenv("NVML_STUB_STATE");
    snprintf(path, sizeof path, "%s.instances", state ? state : "");
    return fopen(path, mode);
}

static void load_instances(State *state) {
    FILE *file = open_instances("r");
    char line[256];
    while (file && fgets(line, sizeof line, file) && state->instance_count < MAX_INSTANCES) {
        Instance *each = &state->instances[state->instance_count];
        if (sscanf(line, "%95s %u %d %u %u %u %95s", each->card, &each->id, &each->compute, &each->profile,
                   &each->start, &each->size, each->uuid) == 7)
            state->instance_count++;
    }
    if (file)
        fclose(file);
}

static void store_instances(const State *state) {
    FILE *file = open_instances("w");
    for (int i = 0; file && i < state->instance_count; i++) {
        const Instance *each = &state->instances[i];
        fprintf(file, "%s %u %d %u %u %u %s\n", each->card, each->id, each->compute, each->profile, each->start,
                each->size, each->uuid);
    }
    if (file)
        fclose(file);
}

static void parse_use(Card *card, const char *line) {
    Process *process = &card->processes[card->process_count];
    nvmlProcessUtilizationSample_t *sample = &card->samples[card->sample_count];
    Limit *limit = &card->limits[card->limit_count];
    long long bytes;
    sscanf(line, "used %llu", &card->used);
    sscanf(line, "busy %d", &card->busy);
    if (strncmp(line, "samples none", 12) == 0)
        card->no_samples = 1;
    if (card->process_count < MAX_PROCESSES &&
        sscanf(line, "process %u %lld %15s %95s", &process->info.pid, &bytes, process->kind, process->uuid) == 4) {
        process->info.usedGpuMemory = (unsigned long long)bytes;
        card->process_count++;
    }
    if (card->sample_count < MAX_SAMPLES &&
        sscanf(line, "sample %u %u %llu", &sample->pid, &sample->smUtil, &sample->timeStamp) == 3)
        card->sample_count++;
    if (card->limit_count < MAX_LIMITS &&
        sscanf(line, "limit %223s %llu %llu", limit->cgroup, &limit->hard, &limit->used) == 3)
        card->limit_count++;
}

static void parse_card(State *state, Card *card, const char *line) {
    char word[64], text[64];
    unsigned int number, mbps;
    int place[MAX_LEVELS];
    long id;
    unsigned long long data;
    Fault *fault = &card->faults[card->fault_count];
    sscanf(line, "name %95[^\n]", card->name);
    sscanf(line, "memory %llu", &card->memory);
    sscanf(line, "pci %31s", card->pci);
    sscanf(line, "numa %d", &card->numa);
    sscanf(line, "ecc %llu", &card->ecc);
    sscanf(line, "mig %d", &card->mig);
    sscanf(line, "recovery %u", &card->recovery);
    parse_profile(card, line);
    parse_use(card, line);
    if (strncmp(line, "fields old", 10) == 0)
        card->old_fields = 1;
    if (strncmp(line, "fields none", 11) == 0)
        card->old_fields = card->no_fields = 1;
    sscanf(line, "nvlink %u", &card->nvlink_version);
    if (sscanf(line, "topology %d %d %d %d", &place[0], &place[1], &place[2], &place[3]) == MAX_LEVELS) {
        memcpy(card->place, place, sizeof card->place);
        card->has_place = 1;
    }
    if (sscanf(line, "link %u %63s %31s %u", &number, word, text, &mbps) == 4 && number < MAX_LINKS) {
        Link *link = &card->links[number];
        link->active = 1;
        link->type = !strcmp(word, "gpu") ? TYPE_GPU : !strcmp(word, "switch") ? TYPE_SWITCH : TYPE_UNKNOWN;
        link->mbps = mbps;
        snprintf(link->remote, sizeof link->remote, "%.31s", text);
    }
    if (sscanf(line, "event %ld %63s %llu", &id, word, &data) == 3 && state->event_count < MAX_EVENTS)
        state->events[state->event_count++] =
            (Event){id, (int)(card - state->cards), strcmp(word, "xid") ? EVENT_DOUBLE_BIT : EVENT_XID, data};
    if (card->fault_count < MAX_ERRORS && sscanf(line, "error %63s %d", fault->function, &fault->code) == 2)
        card->fault_count++;
    else if (card->fault_count < MAX_ERRORS && sscanf(line, "hang %63s", fault->function) == 1)
        card->fault_count++;
}

static State *load(void) {
    State *state = calloc(1, sizeof *state);
    const char *path = getenv("NVML_STUB_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    Card *card = NULL;
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "card ", 5) == 0 && state->card_count < MAX_CARDS) {
            card = &state->cards[state->card_count++];
            sscanf(line, "card %95s", card->uuid);
        } else if (card) {
            parse_card(state, card, line);
        } else if (sscanf(line, "driver %79s", state->driver) != 1) {
            Fault *fault = &state->faults[state->fault_count];
            if (state->fault_count < MAX_ERRORS && sscanf(line, "error %63s %d", fault->function, &fault->code) == 2)
                state->fault_count++;
        }
    }
    if (file)
        fclose(file);
    load_instances(state);
    return state;
}

/* ---- the beginning of each call ------------------------------------------------------------------------------------- */

static nvmlReturn_t faulty(const Fault *faults, int count, const char *function, int *hangs) {
    for (int i = 0; i < count; i++)
        if (!strcmp(faults[i].function, function) || !strcmp(faults[i].function, "*")) {
            *hangs = faults[i].code == 0;
            return faults[i].code;
        }
    *hangs = 0;
    return SUCCESS;
}

static nvmlReturn_t begin(const char *function, State **state) {
    int hangs;
    *state = load();
    if (!initialized && strcmp(function, "nvmlInitWithFlags"))
        return UNINITIALIZED;
    return faulty((*state)->faults, (*state)->fault_count, function, &hangs);
}

/* Finds the MIG device with that UUID, a GPU instance with its compute instance. */
static Instance *instance_called(State *state, const char *uuid) {
    for (int i = 0; i < state->instance_count; i++)
        if (!strcmp(state->instances[i].uuid, uuid) && state->instances[i].compute >= 0)
            return &state->instances[i];
    return NULL;
}

/* Finds the card in the present file; waits as long as the file has a `hang` directive for the function. */
static nvmlReturn_t begin_card(const char *function, nvmlDevice_t device, State **state, Card **card) {
    for (;; pause_ms(POLL_MS), free(*state)) {
        int hangs;
        nvmlReturn_t result = begin(function, state);
        if (result)
            return result;
        if (!device)
            return INVALID_ARGUMENT;
        *card = NULL;
        Instance *mig = instance_called(*state, device->uuid);
        for (int i = 0; i < (*state)->card_count; i++)
            if (!strcmp((*state)->cards[i].uuid, mig ? mig->card : device->uuid))
                *card = &(*state)->cards[i];
        if (!*card)
            return GPU_IS_LOST;
        result = faulty((*card)->faults, (*card)->fault_count, function, &hangs);
        if (!hangs)
            return result;
    }
}

static nvmlReturn_t end(State *state, nvmlReturn_t result) {
    free(state);
    return result;
}

static void put_bus_id(nvmlPciInfo_t *pci, const char *text) {
    memset(pci, 0, sizeof *pci);
    sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF,
             pci->device & 0xFF);
}

static nvmlReturn_t put_text(const char *text, char *buffer, unsigned int length) {
    return snprintf(buffer, length, "%s", text) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

/* ---- library and cards --------------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    State *state;
    nvmlReturn_t result = begin("nvmlInitWithFlags", &state);
    (void)flags;
    if (!result && !initialized++) {
        known_count = state->card_count;
        for (int i = 0; i < known_count; i++)
            memcpy(known[i].uuid, state->cards[i].uuid, sizeof known[i].uuid);
    }
    return end(state, result);
}

nvmlReturn_t nvmlShutdown(void) {
    if (!initialized)
        return UNINITIALIZED;
    initialized--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    (void)result;
    return "an error of the stub";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    State *state;
    nvmlReturn_t result = begin("nvmlSystemGetDriverVersion", &state);
    return end(state, result ? result : put_text(state->driver, version, length));
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    State *state;
    nvmlReturn_t result = begin("nvmlDeviceGetCount_v2", &state);
    if (!result)
        *count = known_count;
    return end(state, result);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    State *state;
    Card *card;
    if (index >= (unsigned int)known_count)
        return INVALID_ARGUMENT;
    *device = (nvmlDevice_t)&known[index];
    return end(state, begin_card("nvmlDeviceGetHandleByIndex_v2", *device, &state, &card));
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    for (int i = 0; i < known_count; i++)
        if (!strcmp(known[i].uuid, uuid))
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    State *state = load();
    Instance *mig = instance_called(state, uuid);
    if (mig) { /* such handles are never freed */
        *device = calloc(1, sizeof **device);
        memcpy((*device)->uuid, mig->uuid, sizeof(*device)->uuid);
    }
    return end(state, mig ? SUCCESS : NOT_FOUND);
}

static Profile *profile_with(Card *card, unsigned int id) {
    for (int i = 0; i < card->profile_count; i++)
        if (card->profiles[i].id == id)
            return &card->profiles[i];
    return NULL;
}

/* Defines a function that reads one value of one card. */
#define READ(NAME, PARAMETERS, BODY)                                                                                   \
    nvmlReturn_t NAME PARAMETERS {                                                                                     \
        State *state;                                                                                                  \
        Card *card;                                                                                                    \
        nvmlReturn_t result = begin_card(#NAME, device, &state, &card);                                                \
        if (!result)                                                                                                   \
            BODY                                                                                                       \
        return end(state, result);                                                                                     \
    }

READ(nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned int length),
     { result = put_text(device->uuid, uuid, length); })

READ(nvmlDeviceGetName, (nvmlDevice_t device, char *name, unsigned int length),
     {
         char text[192];
         const Instance *mig = instance_called(state, device->uuid);
         const Profile *profile = mig ? profile_with(card, mig->profile) : NULL;
         snprintf(text, sizeof text, "%s%s%s", card->name, profile ? " MIG " : "", profile ? profile->name : "");
         result = put_text(text, name, length);
     })

READ(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory),
     { *memory = ((nvmlMemory_t){card->memory, card->memory - card->used, card->used}); })

READ(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *pci), { put_bus_id(pci, card->pci); })

READ(nvmlDeviceGetNumaNodeId, (nvmlDevice_t device, int *node), { *node = card->numa; })

READ(nvmlDeviceGetTotalEccErrors, (nvmlDevice_t device, unsigned int type, unsigned int counter, unsigned long long *n),
     {
         *n = type == 1 && counter == 0 ? card->ecc : 0; /* uncorrected, volatile */
     })

READ(nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned int *current, unsigned int *pending),
     { *current = *pending = card->mig; })

/* The level is that of the nearest thing that both share: the last switch is the nearest. */
READ(nvmlDeviceGetTopologyCommonAncestor, (nvmlDevice_t device, nvmlDevice_t other, int *level), {
    const Card *second = NULL;
    for (int i = 0; other && i < state->card_count; i++)
        if (!strcmp(state->cards[i].uuid, other->uuid))
            second = &state->cards[i];
    if (!second)
        result = other ? GPU_IS_LOST : INVALID_ARGUMENT;
    else if (!card->has_place || !second->has_place)
        result = NOT_SUPPORTED;
    *level = LEVEL_SYSTEM;
    for (int i = 0; second && i < MAX_LEVELS && card->place[i] == second->place[i]; i++)
        *level -= LEVEL_STEP;
})

/* ---- MIG ----------------------------------------------------------------------------------------------------------- */

READ(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t device, unsigned int *count), { *count = 7; })

/* Handles are never freed. */
READ(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig), {
    result = NOT_FOUND;
    for (int i = 0; i < state->instance_count && result; i++) {
        const Instance *each = &state->instances[i];
        if (strcmp(each->card, card->uuid) || each->compute < 0 || index--)
            continue;
        *mig = calloc(1, sizeof **mig);
        memcpy((*mig)->uuid, each->uuid, sizeof(*mig)->uuid);
        result = SUCCESS;
    }
})

READ(nvmlDeviceGetGpuInstanceId, (nvmlDevice_t device, unsigned int *id), {
    const Instance *mig = instance_called(state, device->uuid);
    *id = mig ? mig->id : 0;
    result = mig ? SUCCESS : NOT_SUPPORTED;
})

READ(nvmlDeviceGetComputeInstanceId, (nvmlDevice_t device, unsigned int *id), {
    const Instance *mig = instance_called(state, device->uuid);
    *id = mig ? (unsigned int)mig->compute : 0;
    result = mig ? SUCCESS : NOT_SUPPORTED;
})

READ(nvmlDeviceGetAttributes_v2, (nvmlDevice_t device, nvmlDeviceAttributes_t *attributes), {
    const Instance *mig = instance_called(state, device->uuid);
    const Profile *profile = mig ? profile_with(card, mig->profile) : NULL;
    memset(attributes, 0, sizeof *attributes);
    if (!profile)
        result = NOT_SUPPORTED;
    else {
        attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = profile->slices;
        attributes->memorySizeMB = profile->memory_mb;
    }
})

static const Profile *profile_numbered(const Card *card, unsigned int number) {
    for (int i = 0; i < card->profile_count; i++)
        if (card->profiles[i].number == number)
            return &card->profiles[i];
    return NULL;
}

READ(nvmlDeviceGetGpuInstanceProfileInfo,
     (nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_t *info), {
         const Profile *profile = profile_numbered(card, number);
         memset(info, 0, sizeof *info);
         if (!profile)
             result = NOT_SUPPORTED;
         else {
             info->id = profile->id;
             info->sliceCount = profile->slices;
             info->instanceCount = profile->place_count;
             info->memorySizeMB = profile->memory_mb;
         }
     })

READ(nvmlDeviceGetGpuInstanceProfileInfoV,
     (nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_v2_t *info), {
         const Profile *profile = profile_numbered(card, number);
         if (info->version != (sizeof *info | 2 << 24))
             result = INVALID_ARGUMENT;
         else if (!profile)
             result = NOT_SUPPORTED;
         else {
             info->id = profile->id;
             info->sliceCount = profile->slices;
             info->instanceCount = profile->place_count;
             info->memorySizeMB = profile->memory_mb;
             snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
         }
     })

READ(nvmlDeviceGetGpuInstancePossiblePlacements_v2,
     (nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *places, unsigned int *count), {
         const Profile *profile = profile_with(card, id);
         if (!profile)
             result = NOT_SUPPORTED;
         else if (places && *count < profile->place_count)
             result = INSUFFICIENT_SIZE;
         else {
             *count = profile->place_count;
             if (places)
                 memcpy(places, profile->places, profile->place_count * sizeof *places);
         }
     })

static nvmlGpuInstance_t instance_handle(const char *card, unsigned int id) {
    nvmlGpuInstance_t handle = calloc(1, sizeof *handle);
    snprintf(handle->card, sizeof handle->card, "%s", card);
    handle->id = id;
    return handle;
}

READ(nvmlDeviceGetGpuInstances,
     (nvmlDevice_t device, unsigned int profile, nvmlGpuInstance_t *found, unsigned int *count), {
         *count = 0;
         for (int i = 0; i < state->instance_count; i++)
             if (!strcmp(state->instances[i].card, card->uuid) && state->instances[i].profile == profile)
                 found[(*count)++] = instance_handle(card->uuid, state->instances[i].id);
     })

READ(nvmlDeviceGetGpuInstanceById, (nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *found),
     { *found = instance_handle(card->uuid, id); })

READ(nvmlDeviceCreateGpuInstanceWithPlacement,
     (nvmlDevice_t device, unsigned int id, const nvmlGpuInstancePlacement_t *place, nvmlGpuInstance_t *made), {
         unsigned int next = 1;
         if (!profile_with(card, id))
             result = NOT_SUPPORTED;
         for (int i = 0; i < state->instance_count; i++) {
             const Instance *each = &state->instances[i];
             if (strcmp(each->card, card->uuid))
                 continue;
             if (each->start < place->start + place->size && place->start < each->start + each->size)
                 result = INSUFFICIENT_RESOURCES;
             if (each->id >= next)
                 next = each->id + 1;
         }
         if (!result && state->instance_count < MAX_INSTANCES) {
             Instance *each = &state->instances[state->instance_count++];
             each->id = next;
             each->profile = id;
             each->start = place->start;
             each->size = place->size;
             each->compute = -1;
             snprintf(each->card, sizeof each->card, "%s", card->uuid);
             snprintf(each->uuid, sizeof each->uuid, "MIG-%.70s-%u", card->uuid, next);
             store_instances(state);
             *made = instance_handle(card->uuid, next);
         }
     })

/* Finds the GPU instance of a handle, and its card, in the present file. */
static nvmlReturn_t begin_instance(const char *function, nvmlGpuInstance_t handle, State **state, Instance **instance,
                                   Card **card) {
    *state = NULL;
    for (int i = 0; i < known_count; i++) {
        if (strcmp(known[i].uuid, handle->card))
            continue;
        nvmlReturn_t result = begin_card(function, (nvmlDevice_t)&known[i], state, card);
        for (int k = 0; !result && k < (*state)->instance_count; k++) {
            *instance = &(*state)->instances[k];
            if (!strcmp((*instance)->card, handle->card) && (*instance)->id == handle->id)
                return SUCCESS;
        }
        return result ? result : NOT_FOUND;
    }
    return NOT_FOUND;
}

#define ON_INSTANCE(NAME, PARAMETERS, BODY)                                                                            \
    nvmlReturn_t NAME PARAMETERS {                                                                                     \
        State *state;                                                                                                  \
        Card *card;                                                                                                    \
        Instance *instance;                                                                                            \
        nvmlReturn_t result = begin_instance(#NAME, handle, &state, &instance, &card);                                 \
        if (!result)                                                                                                   \
            BODY                                                                                                       \
        return end(state, result);                                                                                     \
    }

ON_INSTANCE(nvmlGpuInstanceGetInfo, (nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info), {
    info->device = NULL;
    info->id = instance->id;
    info->profileId = instance->profile;
    info->placement.start = instance->start;
    info->placement.size = instance->size;
})

/* Compute instances have two profiles here: number 0 has one slice, number 1 all slices of a larger GPU instance. */
ON_INSTANCE(nvmlGpuInstanceGetComputeInstanceProfileInfo,
            (nvmlGpuInstance_t handle, unsigned int number, unsigned int engine, nvmlComputeInstanceProfileInfo_t *info),
            {
                unsigned int whole = profile_with(card, instance->profile)->slices;
                memset(info, 0, sizeof *info);
                if (engine || number > 1 || (number == 1 && whole == 1))
                    result = NOT_SUPPORTED;
                info->id = number;
                info->sliceCount = number ? whole : 1;
                info->instanceCount = number ? 1 : whole;
            })

ON_INSTANCE(nvmlGpuInstanceCreateComputeInstance,
            (nvmlGpuInstance_t handle, unsigned int profile, nvmlGpuInstance_t *made), {
                if (instance->compute >= 0 || profile != (profile_with(card, instance->profile)->slices > 1))
                    result = INSUFFICIENT_RESOURCES; /* the agent never creates a compute instance on a part of it */
                else {
                    instance->compute = 0;
                    store_instances(state);
                    *made = instance_handle(handle->card, handle->id);
                }
            })

ON_INSTANCE(nvmlGpuInstanceGetComputeInstances,
            (nvmlGpuInstance_t handle, unsigned int profile, nvmlGpuInstance_t *found, unsigned int *count), {
                *count = 0;
                if (instance->compute >= 0 && profile == (profile_with(card, instance->profile)->slices > 1))
                    found[(*count)++] = instance_handle(handle->card, handle->id);
            })

ON_INSTANCE(nvmlComputeInstanceDestroy, (nvmlGpuInstance_t handle), {
    instance->compute = -1;
    store_instances(state);
})

ON_INSTANCE(nvmlGpuInstanceDestroy, (nvmlGpuInstance_t handle), {
    if (instance->compute >= 0)
        result = IN_USE;
    else {
        *instance = state->instances[--state->instance_count];
        store_instances(state);
    }
})

/* ---- use ----------------------------------------------------------------------------------------------------------- */

READ(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *rates), {
    *rates = ((nvmlUtilization_t){(unsigned int)card->busy, 0});
    if (card->busy < 0 || instance_called(state, device->uuid))
        result = NOT_SUPPORTED;
})

/* As in the driver, a buffer that is too small gets nothing but the number of processes. */
static nvmlReturn_t put_processes(const Card *card, const char *uuid, const char *kind, unsigned int *count,
                                  nvmlProcessInfo_t *infos) {
    unsigned int room = infos ? *count : 0;
    unsigned int found = 0;
    for (int i = 0; i < card->process_count; i++) {
        const Process *each = &card->processes[i];
        if (strcmp(each->kind, kind) || strcmp(each->uuid, uuid))
            continue;
        if (found < room)
            infos[found] = each->info;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

READ(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos),
     { result = put_processes(card, device->uuid, "compute", count, infos); })

READ(nvmlDeviceGetMPSComputeRunningProcesses_v3, (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos),
     { result = put_processes(card, device->uuid, "mps", count, infos); })

READ(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos),
     { result = put_processes(card, device->uuid, "graphics", count, infos); })

READ(nvmlDeviceGetProcessUtilization,
     (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long since), {
         unsigned int room = samples ? *count : 0;
         unsigned int found = 0;
         for (int i = 0; i < card->sample_count; i++)
             if (card->samples[i].timeStamp > since) {
                 if (found < room)
                     samples[found] = card->samples[i];
                 found++;
             }
         *count = found;
         if (card->no_samples)
             result = NOT_SUPPORTED;
         else if (!found)
             result = NOT_FOUND;
         else if (found > room)
             result = INSUFFICIENT_SIZE;
     })

READ(nvmlDeviceGetMemoryLimits_v1, (nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits), {
    result = NOT_FOUND;
    for (int i = 0; i < card->limit_count; i++)
        if (!strcmp(card->limits[i].cgroup, limits->nameSpace)) {
            limits->softLimit = limits->hardLimit = card->limits[i].hard;
            limits->currentUsed = card->limits[i].used;
            result = SUCCESS;
        }
})

READ(nvmlDeviceSetMemoryLimits_v1, (nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits), {
    char path[4096];
    if (limits->softLimit > limits->hardLimit || limits->hardLimit > card->memory)
        result = INVALID_ARGUMENT;
    else {
        const char *file = getenv("NVML_STUB_STATE");
        snprintf(path, sizeof path, "%s.limits", file ? file : "");
        FILE *set = fopen(path, "a");
        fprintf(set, "%s %s %llu %llu\n", card->uuid, limits->nameSpace, limits->softLimit >> 20,
                limits->hardLimit >> 20);
        fclose(set);
    }
})

/* ---- NVLink -------------------------------------------------------------------------------------------------------- */

READ(nvmlDeviceGetNvLinkState, (nvmlDevice_t device, unsigned int link, unsigned int *active), {
    if (link >= MAX_LINKS)
        result = INVALID_ARGUMENT;
    else
        *active = card->links[link].active;
})

READ(nvmlDeviceGetNvLinkRemoteDeviceType, (nvmlDevice_t device, unsigned int link, unsigned int *type),
     { *type = card->links[link].type; })

READ(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci),
     { put_bus_id(pci, card->links[link].remote); })

READ(nvmlDeviceGetNvLinkVersion, (nvmlDevice_t device, unsigned int link, unsigned int *version), {
    *version = card->nvlink_version;
    result = link < MAX_LINKS && card->nvlink_version ? SUCCESS : NOT_SUPPORTED;
})

static void put_field(const Card *card, nvmlFieldValue_t *field) {
    field->valueType = VALUE_UNSIGNED_INT;
    field->nvmlReturn = SUCCESS;
    if (field->fieldId == FIELD_RECOVERY_ACTION)
        field->value.uiVal = card->recovery;
    else if (field->fieldId == FIELD_GET_SPEED && !card->old_fields && field->scopeId < MAX_LINKS)
        field->value.uiVal = card->links[field->scopeId].mbps;
    else if (field->fieldId == FIELD_SPEED_COMMON && !card->no_fields)
        field->value.uiVal = card->links[0].mbps;
    else
        field->nvmlReturn = NOT_SUPPORTED;
}

READ(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int count, nvmlFieldValue_t *values), {
    for (int i = 0; i < count; i++)
        put_field(card, &values[i]);
})

/* ---- events -------------------------------------------------------------------------------------------------------- */

READ(nvmlDeviceGetSupportedEventTypes, (nvmlDevice_t device, unsigned long long *types),
     { *types = EVENT_XID | EVENT_DOUBLE_BIT; })

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    State *state;
    nvmlReturn_t result = begin("nvmlEventSetCreate", &state);
    if (!result) {
        *set = calloc(1, sizeof **set);
        for (int i = 0; i < state->event_count; i++)
            if (state->events[i].id > (*set)->seen)
                (*set)->seen = state->events[i].id;
    }
    return end(state, result);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set);
    return SUCCESS;
}

READ(nvmlDeviceRegisterEvents, (nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set), {
    for (int i = 0; i < known_count; i++)
        if (!strcmp(known[i].uuid, card->uuid))
            set->types[i] |= types;
})

static nvmlReturn_t deliver(const State *state, nvmlEventSet_t set, nvmlEventData_t *data) {
    for (int i = 0; i < state->event_count; i++) {
        const Event *event = &state->events[i];
        if (event->id <= set->seen)
            continue;
        set->seen = event->id;
        for (int k = 0; k < known_count; k++)
            if (!strcmp(known[k].uuid, state->cards[event->card].uuid) && set->types[k] & event->type) {
                *data = (nvmlEventData_t){(nvmlDevice_t)&known[k], event->type, event->data, ~0u, ~0u};
                return SUCCESS;
            }
    }
    return TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    nvmlReturn_t result = TIMEOUT;
    for (unsigned int waited = 0; result == TIMEOUT && waited <= timeout_ms; waited += POLL_MS) {
        State *state;
        result = begin("nvmlEventSetWait_v2", &state);
        if (!result)
            result = deliver(state, set, data);
        free(state);
        if (result == TIMEOUT)
            pause_ms(POLL_MS);
    }
    return result;
}
