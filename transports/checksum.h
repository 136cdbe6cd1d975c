/* Checksums of payloads and values. */
#ifndef NEAP_TRANSPORTS_CHECKSUM_H
#define NEAP_TRANSPORTS_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* crc32c (Castagnoli) of `length` more bytes; `crc` is that of the bytes before, 0 at the start. "123456789" gives 0xE3069283. */
uint32_t neap_crc32c(uint32_t crc, const void *bytes, size_t length);

#endif
