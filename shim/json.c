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

enum found { NONSENSE, THERE, ABSENT, UNCLEAR }; /* UNCLEAR: a key has escapes and may be the one */

/* Looks for the key; `value` is its last value, as written. */
static enum found look(struct text object, const char *key, struct text *value) {
    struct cursor cursor = {object.at, object.at + object.length};
    enum found found = ABSENT;
    if (!take(&cursor, '{'))
        return NONSENSE;
    while (take(&cursor, '"')) {
        const char *name = cursor.at;
        if (!skip_string(&cursor))
            return NONSENSE;
        size_t length = (size_t)(cursor.at - name) - 1;
        if (!take(&cursor, ':'))
            return NONSENSE;
        skip_space(&cursor);
        const char *begin = cursor.at;
        if (!skip_value(&cursor))
            return NONSENSE;
        if (length == strlen(key) && memcmp(name, key, length) == 0) {
            *value = (struct text){begin, (size_t)(cursor.at - begin)};
            found = THERE;
        } else if (found == ABSENT && memchr(name, '\\', length)) {
            found = UNCLEAR;
        }
        if (!take(&cursor, ','))
            break;
    }
    return take(&cursor, '}') ? found : NONSENSE;
}

/* Whether `object` has the key, written without escapes as the ones are that we look for. */
int json_member(struct text object, const char *key, struct text *value) {
    return look(object, key, value) == THERE;
}

/* Whether `object` surely is one without the key. */
int json_lacks(struct text object, const char *key) {
    struct text value;
    return look(object, key, &value) == ABSENT;
}

/* Whether a value is just this word: true, null. */
int json_is(struct text value, const char *word) {
    return value.length == strlen(word) && memcmp(value.at, word, value.length) == 0;
}
