#include "tests/unit/unordered_real.h"
#include <string>
#include <unordered_map>

void unordered_real_walk(const char *const *keys, uint32_t count, uint32_t *order)
{
	std::unordered_map<std::string, uint32_t> map;
	for (uint32_t i = 0; i < count; i++)
		map[keys[i]] = i;
	for (const auto &entry : map)
		*order++ = entry.second;
}
