/* What every floor that speaks MCP on stdio shares: growing bytes, just enough JSON, and an answer as one line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bytes {
    char *at;
    size_t used, room;
};

static void need(struct bytes *b, size_t more)
{
    if (b->used + more <= b->room)
        return;
    while (b->room < b->used + more)
        b->room = b->room ? b->room * 2 : 4096;
    b->at = realloc(b->at, b->room);
    if (!b->at)
        abort();
}

static void add(struct bytes *b, const char *text, size_t length)
{
    need(b, length);
    memcpy(b->at + b->used, text, length);
    b->used += length;
}

static void add_text(struct bytes *b, const char *text) { add(b, text, strlen(text)); }

/* Text as the inside of a JSON string. Bytes above 127 pass as they are. */
static void add_quoted(struct bytes *b, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = text[i];
        char escape[8];
        if (c == '"' || c == '\\') {
            escape[0] = '\\';
            escape[1] = c;
            add(b, escape, 2);
        } else if (c == '\n') {
            add(b, "\\n", 2);
        } else if (c < 32) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            add(b, escape, 6);
        } else {
            add(b, text + i, 1);
        }
    }
}

static void send_all(const struct bytes *b)
{
    for (size_t sent = 0; sent < b->used;) {
        ssize_t n = write(1, b->at + sent, b->used - sent);
        if (n < 0 && errno != EINTR)
            exit(0);
        if (n > 0)
            sent += n;
    }
}

/* The end of the JSON value that starts at `at`. */
static const char *skip_value(const char *at)
{
    int depth = 0, quoted = 0;
    for (; *at; at++) {
        if (quoted) {
            if (*at == '\\' && at[1])
                at++;
            else if (*at == '"') {
                quoted = 0;
                if (!depth)
                    return at + 1;
            }
        } else if (*at == '"') {
            quoted = 1;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if (*at == '}' || *at == ']') {
            if (!depth)
                return at;
            if (!--depth)
                return at + 1;
        } else if (*at == ',' && !depth) {
            return at;
        }
    }
    return at;
}

/* The value of a member of the object that starts at `at`, or NULL. */
static const char *member(const char *at, const char *name)
{
    size_t length = strlen(name);
    if (!at || *at != '{')
        return NULL;
    at++;
    for (;;) {
        while (*at == ' ' || *at == ',')
            at++;
        if (*at != '"')
            return NULL;
        const char *key = at + 1;
        at = skip_value(at);
        int same = (size_t)(at - 1 - key) == length && !memcmp(key, name, length);
        while (*at == ' ' || *at == ':')
            at++;
        if (same)
            return at;
        at = skip_value(at);
    }
}

/* A JSON string as a C string that the caller frees. Only the escapes a command needs. */
static char *text_of(const char *at)
{
    if (!at || *at != '"')
        return NULL;
    const char *end = skip_value(at) - 1;
    char *text = malloc(end - at), *to = text;
    for (at++; at < end; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        at++;
        if (*at == 'u') {
            unsigned code = 0;
            sscanf(at + 1, "%4x", &code);
            *to++ = (char)code;
            at += 4;
        } else {
            *to++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at == 'r' ? '\r' : *at;
        }
    }
    *to = 0;
    return text;
}

static void answer(const char *id, const char *result)
{
    struct bytes line = {0};
    add_text(&line, "{\"jsonrpc\":\"2.0\",\"id\":");
    add_text(&line, id);
    add_text(&line, ",\"result\":");
    add_text(&line, result);
    add_text(&line, "}\n");
    send_all(&line);
    free(line.at);
}

/* Reads what there is on stdin and hands each whole line to `take`. Ends the program when the client is gone. */
static void read_input(void (*take)(char *line))
{
    static struct bytes input;
    need(&input, 65537);
    ssize_t n = read(0, input.at + input.used, 65536);
    if (n <= 0)
        exit(0);
    input.used += n;
    char *line = input.at, *end = input.at + input.used, *stop;
    while ((stop = memchr(line, '\n', end - line))) {
        *stop = 0;
        take(line);
        line = stop + 1;
    }
    input.used = end - line;
    memmove(input.at, line, input.used);
}
