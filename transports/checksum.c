#include "transports/checksum.h"
#include <isa-l/crc.h>

/* The library takes lengths as int. */
#define CRC_PIECE (1u << 30)

uint32_t neap_crc32c(uint32_t crc, const void *bytes, size_t length)
{
	/* The library's argument is not const; it only reads. */
	unsigned char *p = (unsigned char *)(uintptr_t)bytes;
	crc = ~crc;
	for (; length > CRC_PIECE; p += CRC_PIECE, length -= CRC_PIECE)
		crc = crc32_iscsi(p, (int)CRC_PIECE, crc);
	return ~crc32_iscsi(p, (int)length, crc);
}
