/* Any bytes as a regular expression and a key: the first byte says where one ends and the other begins. It is refused with a position, or
 * answers within its bound of steps, and without a $ more text does not undo a match. */
#include "store/directory/match.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int good)
{
	if (!good)
		__builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	struct neap_match *match = malloc(sizeof *match);
	size_t length = data[0] < size - 1 ? data[0] : size - 1;
	const char *pattern = (const char *)data + 1, *text = pattern + length;
	char why[100] = "";
	check(match != NULL);
	if (neap_match_compile(match, pattern, length, why, sizeof why)) {
		check(strncmp(why, "position ", 9) == 0);
	} else {
		size_t text_length = size - 1 - length;
		uint64_t steps = 0;
		check(match->positions <= NEAP_MATCH_POSITIONS);
		bool matched = neap_match_run(match, text, text_length, &steps);
		check(steps <= (text_length + match->begin_count + match->end_count + 1) * (NEAP_MATCH_POSITIONS + 1));
		if (match->end_count == 0 && text_length > 0 && neap_match_run(match, text, text_length - 1, &steps))
			check(matched);
		if (match->empty)
			check(matched);
	}
	free(match);
	return 0;
}
