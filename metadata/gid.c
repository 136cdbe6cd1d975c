/* GIDs and ids as text: what addresses of InfiniBand and RoCE, and instances, look like in descriptors and handshakes. */
#include "metadata/descriptor.h"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool neap_gid_parse(const char *text, uint8_t gid[16])
{
	uint8_t parsed[16];
	for (int i = 0; i < 16; i++) {
		int high = hex_digit(*text);
		if (high < 0)
			return false;
		int low = hex_digit(*++text);
		parsed[i] = (uint8_t)(low < 0 ? high : high << 4 | low);
		if (low >= 0)
			text++;
		if (*text != (i < 15 ? ':' : '\0'))
			return false;
		text++;
	}
	for (int i = 0; i < 16; i++)
		gid[i] = parsed[i];
	return true;
}

void neap_gid_format(const uint8_t gid[16], char text[48])
{
	static const char digits[] = "0123456789abcdef";
	for (int i = 0; i < 16; i++) {
		text[3 * i] = digits[gid[i] >> 4];
		text[3 * i + 1] = digits[gid[i] & 15];
		text[3 * i + 2] = i < 15 ? ':' : '\0';
	}
}

bool neap_id_parse(const char *text, uint8_t id[16])
{
	for (int i = 0; i < 32; i++) {
		char c = text[i];
		unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0') : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10) : 16;
		if (digit > 15)
			return false;
		id[i / 2] = (uint8_t)(i % 2 ? id[i / 2] | digit : digit << 4);
	}
	return text[32] == '\0';
}

void neap_id_format(const uint8_t id[16], char text[NEAP_ID_TEXT_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	for (int i = 0; i < 16; i++) {
		text[2 * i] = digits[id[i] >> 4];
		text[2 * i + 1] = digits[id[i] & 15];
	}
	text[32] = '\0';
}
