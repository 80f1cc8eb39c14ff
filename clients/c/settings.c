/* Checks of the firmware's settings, descriptions of all codes, and byte helpers. */
#include <string.h>

#include "core.h"

uint64_t hm_get(const uint8_t *at, unsigned bytes) {
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | *at++;
    return value;
}

void hm_put(uint8_t *at, unsigned bytes, uint64_t value) {
    while (bytes-- > 0) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

uint64_t hm_fingerprint(const uint8_t *data, size_t length, size_t max_bytes) {
    uint64_t hash = UINT64_C(14695981039346656037) ^ length;
    for (const uint8_t *end = data + (length < max_bytes ? length : max_bytes);; hash ^= *data++) {
        hash *= UINT64_C(1099511628211);
        if (data == end)
            return hash;
    }
}

bool hm_is_name(const void *text, size_t length, bool underscore) {
    const char *c = text, *end = c + length;
    for (; c < end; c++) {
        if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-' || (underscore && *c == '_')))
            return false;
    }
    return length >= 1 && length <= 32;
}

static bool is_name(const char *name, bool underscore) {
    return name != NULL && hm_is_name(name, strlen(name), underscore);
}

unsigned hm_find(const struct hushmote_policy *policy, const void *name, size_t length) {
    unsigned at = 0;
    while (at < policy->name_count &&
           (strlen(policy->names[at]) != length || memcmp(policy->names[at], name, length) != 0))
        at++;
    return at;
}

const struct hushmote_group *hm_find_group(const struct hushmote_policy *policy, const void *name, size_t length) {
    for (unsigned i = 0; i < policy->group_count; i++) {
        const struct hushmote_group *group = policy->groups + i;
        if (strlen(group->name) == length && memcmp(group->name, name, length) == 0)
            return group;
    }
    return NULL;
}

static bool policy_fits(const struct hushmote_policy *policy) {
    if (policy == NULL || policy->names == NULL || policy->name_count < 1 || policy->name_count > HM_MAX_ENTRIES ||
        policy->epsilon < HUSHMOTE_EPSILON_MIN || policy->epsilon > HUSHMOTE_EPSILON_MAX || policy->rules < 1 ||
        policy->rules > 15 || policy->consent > (HUSHMOTE_FROM_NETWORK | HUSHMOTE_ASK_EACH))
        return false;
    for (unsigned i = 0; i < policy->name_count; i++) {
        if (!is_name(policy->names[i], true))
            return false;
    }
    for (unsigned i = 0; i < policy->group_count; i++) {
        if (policy->groups == NULL || !is_name(policy->groups[i].name, true))
            return false;
    }
    return true;
}

static bool buffers_fit(const struct hushmote_config *config) {
    return config->experiments != NULL && config->records != NULL && config->unsent_max >= 1 &&
           config->unsent_max <= HUSHMOTE_UNSENT_MAX &&
           config->record_bytes >= (size_t)HUSHMOTE_RECORD_BYTES(config->policy->name_count, config->unsent_max);
}

int hm_settings(const struct hushmote_config *config) {
    bool good = config != NULL && policy_fits(config->policy) && buffers_fit(config) && config->read != NULL &&
                config->write != NULL && config->entropy != NULL && is_name(config->device_id, false) &&
                (config->lock == NULL) == (config->unlock == NULL) &&
                (config->unique_id != NULL || config->unique_id_bytes == 0);
    if (good && (config->fleet != NULL || config->announce_key != NULL))
        good = is_name(config->fleet, true);
#if HUSHMOTE_WITH_LOG
    good = good && (config->policy->log == NULL || (config->policy->log->check != NULL && config->policy->log->check->fits(config)));
#else
    good = good && config->policy->log == NULL;
#endif
#if !HUSHMOTE_WITH_SHA256
    good = good && config->sha256 != NULL;
#endif
#if !HUSHMOTE_WITH_P256
    good = good && (config->announce_key == NULL || config->verify != NULL);
#endif
    return good ? HUSHMOTE_OK : HUSHMOTE_BAD_SETTINGS;
}

/* Descriptions of codes, from HUSHMOTE_OK downwards; codes with an empty text are unused. */
static const char TEXTS[] =
    "well\0"
    "the firmware's policy, device id, fleet, keys, buffers or functions are invalid: see hushmote.h\0"
    "the random source is missing or stuck: power-cycle the board\0"
    "storage failed\0"
    "locked: the ledger is damaged, or larger than its buffer; provision again\0"
    "a ledger exists; replacing it would restart its privacy bound\0"
    "another call is in progress\0"
    "the experiment requires another type of reading\0"
    "the policy has no such experiment\0"
    "the ledger is worn out\0"
    "locked: no ledger; provision this board\0"
    "locked: another client wrote this ledger\0"
    "no identity: flash this board's page or NVS image\0"
    "no identity: other data is in its place\0"
    "the identity is for newer firmware\0"
    "the identity is damaged: flash it again\0"
    "malformed, or a field is missing, unknown or out of range\0"
    "the policy does not allow its name, its epsilon or its budget rule\0"
    "its budget rule, or its epsilon under count, differs from the pinned one\0"
    "its signature is missing or wrong\0"
    "a newer version was published\0"
    "this firmware does not support its type or mechanism\0"
    "it needs more space than this firmware has: raise HUSHMOTE_ROOM_BYTES\0"
    "epsilon is too small for so many cells\0"
    "nobody has opted in to this question\0"
    "the policy does not name its group\0"
    "the broker forbids the subscription\0"
#if HUSHMOTE_WITH_LOG
    "its proof from the log is missing\0"
    "its proof is malformed\0"
    "it is not in the log, or a signature in its proof is wrong\0"
    "too few witnesses have signed its proof\0"
    "every must be one number with a log\0"
#endif
    ;

const char *hushmote_text(int code) {
    const char *text = TEXTS;
    for (; code < 0 && text < TEXTS + sizeof TEXTS - 1; code++)
        text += strlen(text) + 1;
    return code == 0 && *text ? text : "unknown code";
}
