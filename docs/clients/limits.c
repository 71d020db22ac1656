/* Limits from C: cc limits.c -lhiredis -o limits && ./limits HOST:PORT USER */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *dial(const char *address) {
    char host[256];
    const char *colon = strrchr(address, ':');
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    redisContext *c = redisConnect(host, atoi(colon + 1));
    if (!c || c->err) {
        fprintf(stderr, "%s: %s\n", address, c ? c->errstr : "out of memory");
        exit(1);
    }
    return c;
}

/* Sends a call; in a cluster, goes to the node that "MOVED slot host:port" names. */
static redisReply *call(redisContext **c, int argc, const char **argv) {
    redisReply *reply = redisCommandArgv(*c, argc, argv, NULL);
    if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "MOVED ", 6) == 0) {
        redisContext *owner = dial(strrchr(reply->str, ' ') + 1);
        freeReplyObject(reply);
        redisFree(*c);
        *c = owner;
        reply = redisCommandArgv(*c, argc, argv, NULL);
    }
    if (!reply || reply->type != REDIS_REPLY_ARRAY) {
        fprintf(stderr, "%s: %s\n", argv[0], reply ? reply->str : (*c)->errstr);
        exit(1);
    }
    return reply;
}

#define COUNT(array) (int)(sizeof(array) / sizeof(*(array)))

int main(int argc, char **argv) {
    if (argc != 3) return 1;
    redisContext *c = dial(argv[1]);
    char requests[256], search[256];
    snprintf(requests, sizeof requests, "{%s}:requests", argv[2]);
    snprintf(search, sizeof search, "{%s}:search", argv[2]);

    const char *slide[] = {"RL.SLIDE", requests, "100", "60s"};
    redisReply *r = call(&c, COUNT(slide), slide);
    printf("SLIDE allowed=%lld limit=%lld remaining=%lld\n", r->element[0]->integer, r->element[1]->integer,
           r->element[2]->integer);
    freeReplyObject(r);

    const char *bucket[] = {"RL.BUCKET", search, "200", "100", "1h", "5"};
    r = call(&c, COUNT(bucket), bucket);
    printf("BUCKET allowed=%lld limit=%lld remaining=%lld\n", r->element[0]->integer, r->element[1]->integer,
           r->element[2]->integer);
    freeReplyObject(r);

    /* Both or none. */
    const char *multi[] = {"RL.MULTI", requests, "SLIDE 100 60s", search, "BUCKET 200 100 1h 5"};
    r = call(&c, COUNT(multi), multi);
    redisReply **limits = r->element[2]->element;
    printf("MULTI allowed=%lld remaining=%lld,%lld\n", r->element[0]->integer, limits[0]->element[2]->integer,
           limits[1]->element[2]->integer);
    freeReplyObject(r);
    redisFree(c);
}
