/* Preloaded into a server by clock.rs: the time is what a mapped file says, in microseconds.
 * (libfaketime deadlocks with servers built on jemalloc.) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *now_us;

__attribute__((constructor)) static void map_clock(void) {
    const char *path = getenv("RL_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY) : -1;
    if (fd < 0) _exit(97);
    void *page = mmap(NULL, sizeof(*now_us), PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) _exit(98);
    now_us = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && now_us) {
        int64_t us = *now_us;
        time->tv_sec = us / 1000000;
        time->tv_nsec = us % 1000000 * 1000;
    }
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
