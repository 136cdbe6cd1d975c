/* The tier configuration: a JSON document with the keys of Mooncake Store's tiered backend. docs/TIERS.md has the table. Reading
 * the file it may stand in is the program's job. Pure. Any thread. */
#ifndef NEAP_STORE_TIER_CONFIG_H
#define NEAP_STORE_TIER_CONFIG_H

#include "store/tier/dram.h"

#define NEAP_TIERS_MAX 16u
#define NEAP_TAGS_MAX 8u
#define NEAP_TAG_SIZE 32u
#define NEAP_TIER_PATH_SIZE 256u
#define NEAP_CONFIG_WARNINGS_MAX 16u
#define NEAP_CONFIG_WARNING_SIZE 160u
#define NEAP_CONFIG_LENGTH_MAX (1u << 20)
#define NEAP_CAPACITY_INFINITE UINT64_MAX

enum neap_tier_kind { NEAP_TIER_DRAM, NEAP_TIER_STORAGE };

struct neap_tier_settings {
	enum neap_tier_kind kind;
	uint64_t capacity; /* bytes; NEAP_CAPACITY_INFINITE only for STORAGE */
	int32_t priority;  /* higher: preferred */
	uint32_t tag_count;
	char tags[NEAP_TAGS_MAX][NEAP_TAG_SIZE];

	/* DRAM */
	int32_t numa_node; /* < 0: none */
	enum neap_pages pages;
	uint64_t slab_bytes; /* 0: by capacity */

	/* STORAGE */
	uint64_t staging_buffer_capacity, batch_size_threshold, batch_count_threshold;
	uint64_t total_size_limit, bucket_size_limit, bucket_keys_limit;
	char storage_filepath[NEAP_TIER_PATH_SIZE];
};

enum neap_tier_role_mode { NEAP_ROLES_AUTO, NEAP_ROLES_MANUAL };

struct neap_scheduler_settings {
	enum neap_tier_role_mode role_mode;
	char fast_tier_tag[NEAP_TAG_SIZE], slow_tier_tag[NEAP_TAG_SIZE];
	uint64_t thread_count, queue_capacity, loop_interval_ms, hot_key_num;
	double watermark_low, watermark_high, watermark_limit;
	double evict_rate_k, evict_load_window_s;
	uint64_t offload_freq_threshold, onboard_freq_threshold;
	double onboard_fast_threshold;
	uint64_t sketch_capacity, candidate_scan_limit;
	uint64_t band_warm, band_hot, band_veryhot;
};

struct neap_tier_config {
	uint32_t tier_count;
	struct neap_tier_settings tiers[NEAP_TIERS_MAX];
	struct neap_scheduler_settings scheduler;
	/* What was read and has no effect, each key once. */
	uint32_t warning_count, warnings_left_out;
	char warnings[NEAP_CONFIG_WARNINGS_MAX][NEAP_CONFIG_WARNING_SIZE];
};

/* 0, NEAP_EJSON (what is there is not right), NEAP_ELIMIT (too much of it); `why` then says "line 3, column 15:
 * tiers[0].capacity: is 0 and must be at least 1; write a size such as \"4GB\"". The first of several errors. */
int neap_tier_config_read(const char *text, size_t length, struct neap_tier_config *config, char *why, size_t why_size);

/* The tier that has the tag, of several the one with the highest priority; NULL: none has. */
const struct neap_tier_settings *neap_tier_config_tagged(const struct neap_tier_config *config, const char *tag);

/* The text is the document itself, not the name of a file that holds it. */
bool neap_tier_config_is_inline(const char *text);

/* "1GB", "512 MiB", "1.5T", "4096", "infinite"; units are powers of 1024 with or without i and B, in any case. False: none of
 * these, or more than 2^64. */
bool neap_size_parse(const char *text, uint64_t *bytes_p);

#endif
