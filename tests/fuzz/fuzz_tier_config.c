/* Tier configurations from outside: an answer with a place, or settings within their bounds. */
#include "store/tier/config.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct neap_tier_config config;
	char why[300];
	int error = neap_tier_config_read((const char *)data, size, &config, why, sizeof why);
	if (error && strncmp(why, "line ", 5) != 0 && size <= NEAP_CONFIG_LENGTH_MAX)
		abort();
	if (config.tier_count > NEAP_TIERS_MAX || config.warning_count > NEAP_CONFIG_WARNINGS_MAX || (!error && config.tier_count == 0))
		abort();
	for (uint32_t i = 0; i < config.tier_count; i++)
		if (config.tiers[i].tag_count > NEAP_TAGS_MAX || config.tiers[i].capacity == 0)
			abort();
	return 0;
}
