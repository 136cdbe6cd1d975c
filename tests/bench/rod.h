/* The measuring rod: the same bytes on the wire as the plain, acknowledged TCP framing, moved by two bare processes that do
 * nothing else. What it reaches is what a machine can do; what it reaches the naive way is what a simple loop gives. Not built on
 * the library. */
#ifndef TESTS_BENCH_ROD_H
#define TESTS_BENCH_ROD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ROD_HEADER 24u
#define ROD_STATUS 8u
#define ROD_RING 65536u /* requests that can be under way; a power of two */
#define ROD_VECTORS 1024
#define ROD_GATHER (UINT64_C(1) << 20) /* bytes of one send or receive */
#define ROD_STAGING (UINT64_C(256) << 10)
#define ROD_LARGE (UINT64_C(32) << 10) /* from here on payloads go straight to their place */
#define ROD_LOWAT (512 << 10)

struct rod_header {
	uint64_t size, address;
	uint8_t opcode, padding[7];
};

struct rod_options {
	char what[16]; /* write, read, pingpong, memcpy */
	char congestion[16];
	bool naive, spin, verify, pin;
	uint64_t block, window, buffer;
	double seconds;
};

/* Shared by the two processes. */
struct rod_shared {
	pthread_barrier_t barrier;
	struct rod_options options; /* of this run */
	bool ended;                 /* no further run */
	uint16_t port;
	uint64_t requests, calls[2], wrong; /* 0: initiator, 1: target */
	double elapsed, cpu[2];
	double p50_us, p99_us;
};

struct rod {
	const struct rod_options *options;
	struct rod_shared *shared;
	char *memory, *second; /* second: of memcpy */
	uint64_t calls, random;
};

void rod_target(struct rod *rod);
void rod_initiator(struct rod *rod);
void rod_pong(struct rod *rod);
void rod_ping(struct rod *rod);
void rod_memcpy(struct rod *rod);

/* rod.c */
void rod_die(const char *what) __attribute__((noreturn));
void rod_meet(struct rod *rod);
double rod_now(void);
double rod_cpu(void);
uint64_t rod_random_place(struct rod *rod); /* a page-aligned offset at which a block fits */
int rod_listen(struct rod *rod);
int rod_accept(struct rod *rod, int listener);
int rod_connect(struct rod *rod);

#endif
