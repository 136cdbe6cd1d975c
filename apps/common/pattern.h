/* Test data that tells where it belongs: byte i of the pattern of a seed is a function of i and the seed alone, never zero for
 * long, and each 512-byte sector carries its own number, so that a displaced, torn or stale sector is seen. */
#ifndef APPS_COMMON_PATTERN_H
#define APPS_COMMON_PATTERN_H

#include <stdint.h>

/* Writes bytes [offset, offset + length) of the pattern. */
void app_pattern_fill(void *memory, uint64_t offset, uint64_t length, uint64_t seed);
/* UINT64_MAX when memory holds those bytes, otherwise the index in memory of the first that differs. */
uint64_t app_pattern_check(const void *memory, uint64_t offset, uint64_t length, uint64_t seed);
/* The same for zeroes. */
uint64_t app_zero_check(const void *memory, uint64_t length);

#endif
