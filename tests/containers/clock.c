/* Preloaded into a server by clock.rs: the time that it reads is RL_TEST_CLOCK seconds off.
 * (libfaketime deadlocks with servers built on jemalloc.) */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset;

__attribute__((constructor)) static void read_offset(void) {
    const char *seconds = getenv("RL_TEST_CLOCK");
    if (!seconds) _exit(97);
    offset = atol(seconds);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += offset;
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

/* Replication's timeouts read this one. */
time_t time(time_t *into) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
