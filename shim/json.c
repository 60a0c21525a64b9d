/*
 * Finds one member of a JSON object without a parser: no allocation, no recursion, every step is
 * bounded by the text. The runtime has already parsed what we look into, so values are not checked,
 * only their ends are found; on nonsense the answer is "not there".
 */
#include "shim.h"

#include <string.h>

struct cursor {
    const char *at;
    const char *end;
};

static void skip_space(struct cursor *cursor) {
    while (cursor->at < cursor->end && memchr(" \t\r\n", *cursor->at, 4))
        cursor->at++;
}

static int take(struct cursor *cursor, char wanted) {
    skip_space(cursor);
    if (cursor->at == cursor->end || *cursor->at != wanted)
        return 0;
    cursor->at++;
    return 1;
}

/* From behind the opening quote to behind the closing one. */
static int skip_string(struct cursor *cursor) {
    while (cursor->at < cursor->end) {
        char c = *cursor->at++;
        if (c == '"')
            return 1;
        if (c == '\\' && cursor->at < cursor->end)
            cursor->at++;
    }
    return 0;
}

/* Strings are skipped whole, so brackets inside of them do not count. */
static int skip_value(struct cursor *cursor) {
    size_t depth = 0;
    const char *begin = cursor->at;
    while (cursor->at < cursor->end) {
        char c = *cursor->at;
        if (depth == 0 && memchr(",]} \t\r\n", c, 7))
            break; /* behind a number or a word */
        cursor->at++;
        if (c == '"' && !skip_string(cursor))
            return 0;
        if (c == '{' || c == '[')
            depth++;
        if (c == '}' || c == ']')
            depth--;
        if (depth == 0 && memchr("\"}]", c, 3))
            break;
    }
    return depth == 0 && cursor->at > begin;
}

/* Whether `object` has the key; `value` is then its last value, as written. Keys with escapes are
 * never the ones we look for. */
int json_member(struct text object, const char *key, struct text *value) {
    struct cursor cursor = {object.at, object.at + object.length};
    int found = 0;
    if (!take(&cursor, '{'))
        return 0;
    while (take(&cursor, '"')) {
        const char *name = cursor.at;
        if (!skip_string(&cursor))
            return 0;
        size_t length = (size_t)(cursor.at - name) - 1;
        if (!take(&cursor, ':'))
            return 0;
        skip_space(&cursor);
        const char *begin = cursor.at;
        if (!skip_value(&cursor))
            return 0;
        if (length == strlen(key) && memcmp(name, key, length) == 0) {
            *value = (struct text){begin, (size_t)(cursor.at - begin)};
            found = 1;
        }
        if (!take(&cursor, ','))
            break;
    }
    return found && take(&cursor, '}');
}
