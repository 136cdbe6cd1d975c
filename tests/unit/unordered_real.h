/* How the hash map of this machine's C++ library walks: what neap_unordered_walk says it does. */
#ifndef TESTS_UNIT_UNORDERED_REAL_H
#define TESTS_UNIT_UNORDERED_REAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
void unordered_real_walk(const char *const *keys, uint32_t count, uint32_t *order);
#ifdef __cplusplus
}
#endif

#endif
