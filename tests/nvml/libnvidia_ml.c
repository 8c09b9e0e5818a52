/*
 * NVML's binary interface, answered from a text file instead of a driver: what the agent calls, and nothing else.
 *
 * The file is named by $NVML_STUB_STATE and read anew by each call, so a test changes the hardware while an agent runs.
 * It has one directive per line. Before the first card:
 *
 *     driver VERSION
 *     error FUNCTION CODE             nvmlInitWithFlags, nvmlDeviceGetCount_v2, nvmlEventSetWait_v2 …
 *
 * and then for each card, in the order of their indexes:
 *
 *     card UUID
 *     name TEXT                       until the end of the line
 *     memory BYTES
 *     pci BUS_ID                      DOMAIN:BUS:DEVICE.FUNCTION, hexadecimal
 *     numa NODE | ecc COUNT | mig 0|1 | recovery ACTION
 *     link NUMBER gpu|switch|unknown BUS_ID MBPS    an active NVLink
 *     fields old                      the driver knows a common speed of all links only
 *     event ID xid|dbe DATA           IDs grow; each is delivered once to whoever registered before it was written
 *     error FUNCTION CODE             FUNCTION may be *
 *     hang FUNCTION                   the call does not return while this stands
 *
 * As with the real library the set of cards is that of nvmlInit: one that has gone since is lost, and one that has come
 * is not seen before the next nvmlInit.
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
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    UNKNOWN = 999,
};
enum { TYPE_GPU = 0, TYPE_SWITCH = 2, TYPE_UNKNOWN = 255 };
enum { FIELD_SPEED_COMMON = 90, FIELD_GET_SPEED = 164, FIELD_RECOVERY_ACTION = 230 };
enum { VALUE_UNSIGNED_INT = 1 };
enum { EVENT_DOUBLE_BIT = 2, EVENT_XID = 8 };
enum { MAX_CARDS = 16, MAX_LINKS = 18, MAX_ERRORS = 16, MAX_EVENTS = 64, POLL_MS = 5 };

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

/* A handle is the card's identity: it stays the card's when others come and go. */
typedef struct {
    char uuid[96];
} *nvmlDevice_t;

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
    char function[64];
    int code; /* 0: the call hangs */
} Fault;

typedef struct {
    int active, type;
    char remote[32];
    unsigned int mbps;
} Link;

typedef struct {
    char uuid[96], name[96], pci[32];
    unsigned long long memory, ecc;
    int numa, mig, old_fields;
    unsigned int recovery;
    Link links[MAX_LINKS];
    Fault faults[MAX_ERRORS];
    int fault_count;
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

static void parse_card(State *state, Card *card, const char *line) {
    char word[64], text[64];
    unsigned int number, mbps;
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
    if (strncmp(line, "fields old", 10) == 0)
        card->old_fields = 1;
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
    char line[256];
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
    return state;
}

/* ---- what a call begins with --------------------------------------------------------------------------------------- */

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

/* Finds the card as the file has it now; waits for as long as the file says that the call hangs. */
static nvmlReturn_t begin_card(const char *function, nvmlDevice_t device, State **state, Card **card) {
    for (;; pause_ms(POLL_MS), free(*state)) {
        int hangs;
        nvmlReturn_t result = begin(function, state);
        if (result)
            return result;
        if (!device)
            return INVALID_ARGUMENT;
        *card = NULL;
        for (int i = 0; i < (*state)->card_count; i++)
            if (!strcmp((*state)->cards[i].uuid, device->uuid))
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

/* A function that reads one value of one card. */
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
     { result = put_text(card->uuid, uuid, length); })

READ(nvmlDeviceGetName, (nvmlDevice_t device, char *name, unsigned int length),
     { result = put_text(card->name, name, length); })

READ(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory),
     { *memory = ((nvmlMemory_t){card->memory, card->memory, 0}); })

READ(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *pci), { put_bus_id(pci, card->pci); })

READ(nvmlDeviceGetNumaNodeId, (nvmlDevice_t device, int *node), { *node = card->numa; })

READ(nvmlDeviceGetTotalEccErrors, (nvmlDevice_t device, unsigned int type, unsigned int counter, unsigned long long *n),
     {
         *n = type == 1 && counter == 0 ? card->ecc : 0; /* uncorrected, volatile */
     })

READ(nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned int *current, unsigned int *pending),
     { *current = *pending = card->mig; })

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

static void put_field(const Card *card, nvmlFieldValue_t *field) {
    field->valueType = VALUE_UNSIGNED_INT;
    field->nvmlReturn = SUCCESS;
    if (field->fieldId == FIELD_RECOVERY_ACTION)
        field->value.uiVal = card->recovery;
    else if (field->fieldId == FIELD_GET_SPEED && !card->old_fields && field->scopeId < MAX_LINKS)
        field->value.uiVal = card->links[field->scopeId].mbps;
    else if (field->fieldId == FIELD_SPEED_COMMON)
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
