/* Sizes as people write them. */
#include "store/tier/config.h"
#include <string.h>
#include <strings.h>

/* Digits before and after the point, as a whole number and the power of ten to divide by. */
static bool parse_number(const char **text_p, uint64_t *value_p, uint64_t *divisor_p)
{
	const char *text = *text_p;
	uint64_t value = 0, divisor = 1;
	bool point = false, any = false;
	for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point && any); text++) {
		if (*text == '.') {
			point = true;
			any = false;
			continue;
		}
		uint64_t digit = (uint64_t)(*text - '0');
		any = true;
		if (point && divisor >= 1000000)
			continue; /* beyond a millionth of a unit */
		if (value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
		divisor *= point ? 10 : 1;
	}
	*text_p = text;
	*value_p = value;
	*divisor_p = divisor;
	return any;
}

static bool parse_unit(const char *text, uint32_t *shift_p)
{
	static const char letters[] = "KMGTP";
	static const char *const tails[] = {"", "B", "iB", "i"};
	*shift_p = 0;
	if (*text == '\0' || strcasecmp(text, "B") == 0 || strcasecmp(text, "bytes") == 0)
		return true;
	for (uint32_t i = 0; i < sizeof letters - 1; i++)
		if ((*text & ~0x20) == letters[i])
			*shift_p = 10 * (i + 1);
	for (size_t i = 0; *shift_p > 0 && i < sizeof tails / sizeof *tails; i++)
		if (strcasecmp(text + 1, tails[i]) == 0)
			return true;
	return false;
}

bool neap_size_parse(const char *text, uint64_t *bytes_p)
{
	uint64_t value, divisor;
	uint32_t shift;
	if (strcasecmp(text, "infinite") == 0) {
		*bytes_p = NEAP_CAPACITY_INFINITE;
		return true;
	}
	if (!parse_number(&text, &value, &divisor))
		return false;
	while (*text == ' ')
		text++;
	if (!parse_unit(text, &shift))
		return false;
	__extension__ unsigned __int128 bytes = (unsigned __int128)value << shift;
	bytes /= divisor;
	if (bytes >= UINT64_MAX)
		return false;
	*bytes_p = (uint64_t)bytes;
	return true;
}
