/* Any bytes as a segment descriptor. What is accepted must be writable, and what is written must read the same. */
#include "metadata/descriptor.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int good)
{
	if (!good)
		__builtin_trap();
}

static void check_ranges(const struct neap_descriptor *descriptor)
{
	for (uint32_t i = 0; i < descriptor->buffer_count && i < 64; i++) {
		const struct neap_buffer_desc *buffer = &descriptor->buffers[i];
		check(neap_descriptor_covers(descriptor, buffer->address, buffer->length));
		check(neap_descriptor_covers(descriptor, buffer->address + (buffer->length - 1), 1));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_descriptor *first, *second;
	char why[200], *text, *again;
	size_t length, again_length;

	(void)neap_json_prescan((const char *)data, size, NEAP_DEPTH_MAX, why, sizeof why);
	int error = neap_descriptor_decode((const char *)data, size, &first, why, sizeof why);
	check(error ? !first && why[0] : first != NULL);
	if (error)
		return 0;
	check(neap_json_prescan((const char *)data, size, NEAP_DEPTH_MAX, NULL, 0) == 0);
	check_ranges(first);
	check(neap_descriptor_encode(first, 1, true, SIZE_MAX, &text, &length, why, sizeof why) == 0);
	check(neap_descriptor_decode(text, length, &second, why, sizeof why) == 0);
	check(neap_descriptor_encode(second, 1, true, length, &again, &again_length, why, sizeof why) == 0);
	check(again_length == length && memcmp(text, again, length) == 0);
	neap_descriptor_free(second);
	free(text);
	free(again);
	neap_descriptor_free(first);
	return 0;
}
