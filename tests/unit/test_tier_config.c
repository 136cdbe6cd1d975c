/* The tier configuration: what is taken, and that each mistake is named with its place. */
#include "store/tier/config.h"
#include <check.h>
#include <neap/store_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_tier_config config;
static char why[512];

static int read_text(const char *text)
{
	return neap_tier_config_read(text, strlen(text), &config, why, sizeof why);
}

START_TEST(sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{"1GB", UINT64_C(1) << 30}, {"512 MiB", 512u << 20}, {"512mb", 512u << 20}, {"4096", 4096}, {"1.5T", UINT64_C(3) << 39},
		{"0.5 KB", 512}, {"2P", UINT64_C(1) << 51}, {"17 B", 17}, {"infinite", UINT64_MAX}, {"Infinite", UINT64_MAX}, {"3Ki", 3072},
	};
	static const char *const bad[] = {"", "GB", "-1", "1 XB", "1GBs", "1..5G", "1.G", ".5G", "1e3", "99999999999999999999", "16384P",
	                                  "0x10", "1 GB ", "nan", "18446744073709551615"};
	uint64_t bytes;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		ck_assert_msg(neap_size_parse(good[i].text, &bytes), "%s", good[i].text);
		ck_assert_msg(bytes == good[i].bytes, "%s is %llu", good[i].text, (unsigned long long)bytes);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(!neap_size_parse(bad[i], &bytes), "%s", bad[i]);
}
END_TEST

START_TEST(the_least_that_can_be_said)
{
	ck_assert_int_eq(read_text("{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": 1073741824, \"priority\": 10}]}"), NEAP_OK);
	ck_assert_uint_eq(config.tier_count, 1);
	ck_assert_int_eq(config.tiers[0].kind, NEAP_TIER_DRAM);
	ck_assert_uint_eq(config.tiers[0].capacity, 1u << 30);
	ck_assert_int_eq(config.tiers[0].priority, 10);
	ck_assert_int_eq(config.tiers[0].numa_node, -1);
	ck_assert_uint_eq(config.tiers[0].tag_count, 0);
	ck_assert_uint_eq(config.warning_count, 0);
	const struct neap_scheduler_settings *scheduler = &config.scheduler;
	ck_assert(scheduler->watermark_low == 0.70 && scheduler->watermark_high == 0.90 && scheduler->watermark_limit == 0.95);
	ck_assert_uint_eq(scheduler->hot_key_num, 2000);
	ck_assert_uint_eq(scheduler->sketch_capacity, 65536);
	ck_assert_uint_eq(scheduler->band_veryhot, 15);
}
END_TEST

START_TEST(all_that_can_be_said)
{
	ck_assert_int_eq(read_text("{\"scheduler\": {\"type\": \"event_driven\", \"tier_role_mode\": \"manual\", \"fast_tier_tag\": \"fast\",\n"
	                           " \"slow_tier_tag\": \"ssd\", \"thread_count\": 4, \"queue_capacity\": 7, \"loop_interval_ms\": 250,\n"
	                           " \"hot_key_num\": 0, \"evict_watermark_low\": 0.5, \"evict_watermark_high\": 0.75,\n"
	                           " \"limit_watermark\": 1, \"evict_rate_k\": 2.5, \"evict_load_window_s\": 1e1,\n"
	                           " \"offload_freq_threshold\": 3, \"onboard_freq_threshold\": 5, \"onboard_fast_threshold\": 0.25,\n"
	                           " \"sketch_capacity\": 1024, \"candidate_scan_limit\": 0, \"band_warm_threshold\": 1,\n"
	                           " \"band_hot_threshold\": 2, \"band_veryhot_threshold\": 3},\n"
	                           "\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"4 GB\", \"priority\": 100, \"tags\": [\"fast\", \"local\"],\n"
	                           " \"allocator_type\": \"OFFSET\", \"numa_node\": 1, \"huge_pages\": \"no\", \"slab_size\": \"4MB\"},\n"
	                           "{\"type\": \"DISK\", \"capacity\": \"infinite\", \"priority\": -5, \"tags\": [\"ssd\"],\n"
	                           " \"staging_buffer_capacity\": \"32MB\", \"batch_size_threshold\": 1000, \"batch_count_threshold\": 9,\n"
	                           " \"storage_backend_type\": \"bucket_storage_backend\", \"storage_filepath\": \"/var/neap\",\n"
	                           " \"total_size_limit\": \"1TB\", \"bucket_size_limit\": \"64MB\", \"bucket_keys_limit\": 11}]}"),
	                 NEAP_OK);
	ck_assert_uint_eq(config.warning_count, 0);
	ck_assert_uint_eq(config.tier_count, 2);
	const struct neap_tier_settings *dram = &config.tiers[0], *disk = &config.tiers[1];
	ck_assert_str_eq(dram->tags[1], "local");
	ck_assert_int_eq(dram->numa_node, 1);
	ck_assert_int_eq(dram->pages, NEAP_PAGES_NORMAL);
	ck_assert_uint_eq(dram->slab_bytes, 4u << 20);
	ck_assert_int_eq(disk->kind, NEAP_TIER_STORAGE);
	ck_assert_uint_eq(disk->capacity, NEAP_CAPACITY_INFINITE);
	ck_assert_int_eq(disk->priority, -5);
	ck_assert_uint_eq(disk->staging_buffer_capacity, 32u << 20);
	ck_assert_str_eq(disk->storage_filepath, "/var/neap");
	ck_assert_uint_eq(disk->total_size_limit, UINT64_C(1) << 40);
	ck_assert_uint_eq(disk->bucket_keys_limit, 11);
	ck_assert_uint_eq(config.scheduler.thread_count, 4);
	ck_assert(config.scheduler.evict_load_window_s == 10);
	ck_assert_int_eq(config.scheduler.role_mode, NEAP_ROLES_MANUAL);
}
END_TEST

START_TEST(what_has_no_effect_is_said_once)
{
	ck_assert_int_eq(read_text("{\"comment\": [1, {\"x\": 2}],\n"
	                           "\"tiers\": [{\"type\": \"DRAM\", \"capacity\": 1, \"priority\": 1, \"colour\": 1, \"total_size_limit\": \"1GB\"},\n"
	                           "  {\"type\": \"DRAM\", \"capacity\": 1, \"priority\": 1, \"colour\": null, \"allocator_type\": \"CACHELIB\"}],\n"
	                           "\"scheduler\": {\"type\": \"legacy\", \"policy\": \"LRU\", \"stats_shards\": 4}}"),
	                 NEAP_OK);
	ck_assert_uint_eq(config.warning_count, 7);
	ck_assert_str_eq(config.warnings[0], "line 1, column 2: comment: unknown key, ignored");
	ck_assert_str_eq(config.warnings[1], "line 2, column 58: colour: unknown key, ignored");
	ck_assert_str_eq(config.warnings[2], "line 2, column 71: total_size_limit: has no effect on a DRAM tier");
	ck_assert_ptr_nonnull(strstr(config.warnings[3], "CACHELIB"));
	ck_assert_ptr_nonnull(strstr(config.warnings[6], "the legacy scheduler is not in this build"));
	char text[2048], *to = text;
	to += sprintf(to, "{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": 1, \"priority\": 1}]");
	for (int i = 0; i < 40; i++)
		to += sprintf(to, ", \"k%d\": 1", i);
	sprintf(to, "}");
	ck_assert_int_eq(read_text(text), NEAP_OK);
	ck_assert_uint_eq(config.warning_count, NEAP_CONFIG_WARNINGS_MAX);
	ck_assert_uint_eq(config.warnings_left_out, 40 - NEAP_CONFIG_WARNINGS_MAX);
}
END_TEST

#define TIER(text) "{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"1GB\", \"priority\": 1" text "}]}"
#define SCHEDULER(text) "{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"1GB\", \"priority\": 1}],\n\"scheduler\": {" text "}}"

static const struct {
	const char *text, *says;
	int error;
} mistakes[] = {
	{"", "line 1, column 1: document: the text ends", NEAP_EJSON},
	{"[]", "line 1, column 1: document: is an array and must be an object", NEAP_EJSON},
	{"{}", "line 1, column 1: document: \"tiers\" is missing or empty", NEAP_EJSON},
	{"{\"tiers\": []}", "line 1, column 11: document: \"tiers\" is missing or empty", NEAP_EJSON},
	{"{\"tiers\": 5}", "line 1, column 11: tiers: is a number and must be an array of tiers; such as", NEAP_EJSON},
	{"{\"tiers\": [5]}", "line 1, column 12: tiers[0]: is a number and must be an object", NEAP_EJSON},
	{"{\n  \"tiers\": [\n    {\"type\": \"DRAM\",\n     \"capacity\": 0, \"priority\": 1}]}",
	 "line 4, column 18: tiers[0].capacity: is 0 and must be a size in bytes of at least 1; write a size such as", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"1 lot\", \"priority\": 1}]}",
	 "line 1, column 41: tiers[0].capacity: is \"1 lot\" and must be a size such as", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"0\", \"priority\": 1}]}", "tiers[0].capacity: is \"0\" and must be", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": -1, \"priority\": 1}]}", "tiers[0].capacity: is -1 and must be", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": 1.5, \"priority\": 1}]}", "tiers[0].capacity: is 1.5 and must be", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": null, \"priority\": 1}]}", "tiers[0].capacity: is null and must be", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"infinite\", \"priority\": 1}]}", "tiers: an infinite", NEAP_OK},
	{"{\"tiers\": [{\"type\": \"ASCEND_NPU\", \"capacity\": 1, \"priority\": 1}]}",
	 "tiers[0].type: is \"ASCEND_NPU\" and must be one of \"DRAM\", \"STORAGE\", \"DISK\"; other kinds are not in this build", NEAP_EJSON},
	{"{\"tiers\": [{\"capacity\": 1, \"priority\": 1}]}", "line 1, column 12: tiers[0]: has no \"type\"", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"priority\": 1}]}", "tiers[0]: has no \"capacity\"", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": 1}]}", "tiers[0]: has no \"priority\", which each tier needs; higher", NEAP_EJSON},
	{TIER(", \"priority\": 2"), "tiers[0].priority: is given twice", NEAP_EJSON},
	{TIER("}], \"tiers\": [{"), "tiers: is given twice", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": 1, \"priority\": 3000000000}]}", "tiers[0].priority: is 3000000000 and must be an integer",
	 NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": 1, \"priority\": 1.5}]}", "tiers[0].priority: is 1.5 and must be an integer", NEAP_EJSON},
	{TIER(", \"tags\": \"fast\""), "tiers[0].tags: is a string and must be an array", NEAP_EJSON},
	{TIER(", \"tags\": [\"a\", 7]"), "tiers[0].tags[1]: is a number and must be a string", NEAP_EJSON},
	{TIER(", \"tags\": [\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]"), "tiers[0].tags[8]: a tier has at most 8 tags", NEAP_ELIMIT},
	{TIER(", \"tags\": [\"a tag that is much longer than a tag should ever be\"]"), "tiers[0].tags[0]: has 51 bytes and may have 31",
	 NEAP_ELIMIT},
	{TIER(", \"slab_size\": \"3MB\""), "a slab_size of 3145728, and it must be a power of two", NEAP_EJSON},
	{TIER(", \"slab_size\": \"1MB\""), "tiers[0].slab_size: is \"1MB\" and must be a size in bytes from 2097152 to 67108864", NEAP_EJSON},
	{TIER(", \"allocator_type\": \"BUDDY\""), "tiers[0].allocator_type: is \"BUDDY\" and must be one of \"OFFSET\", \"CACHELIB\"", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"STORAGE\", \"capacity\": 1, \"priority\": 1, \"storage_filepath\": \"here\"}]}",
	 "tiers[0].storage_filepath: must be an absolute path", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"STORAGE\", \"capacity\": 1, \"priority\": 1, \"total_size_limit\": \"100MB\"}]}",
	 "tiers[0]: has a bucket_size_limit above its total_size_limit", NEAP_EJSON},
	{SCHEDULER("\"type\": \"clever\""), "line 2, column 23: scheduler.type: is \"clever\" and must be one of", NEAP_EJSON},
	{SCHEDULER("\"evict_watermark_low\": 0.95"), "evict_watermark_low 0.95, evict_watermark_high 0.9 and limit_watermark 0.95 must not fall",
	 NEAP_EJSON},
	{SCHEDULER("\"evict_watermark_high\": 1.2"), "scheduler.evict_watermark_high: is 1.2 and must be a number from 0.01 to 1", NEAP_EJSON},
	{SCHEDULER("\"evict_load_window_s\": 1e999"), "scheduler.evict_load_window_s: is 1e999 and must be", NEAP_EJSON},
	{SCHEDULER("\"band_hot_threshold\": 15"), "must rise", NEAP_EJSON},
	{SCHEDULER("\"thread_count\": \"2\""), "scheduler.thread_count: is a string and must be a number", NEAP_EJSON},
	{SCHEDULER("\"tier_role_mode\": \"manual\", \"fast_tier_tag\": \"x\""), "no tier has the fast_tier_tag \"x\"", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\" \"capacity\": 1}]}", "line 1, column 28: tiers[0].type: not JSON at byte 27: a comma or } is due",
	 NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"1GB\", \"priority\": 1}]} x", "not JSON at byte 64: the end of the text is due", NEAP_EJSON},
	{"{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"1GB", "the text ends", NEAP_EJSON},
};

START_TEST(a_mistake_is_named_with_its_place)
{
	int error = read_text(mistakes[_i].text);
	if (mistakes[_i].error == NEAP_OK) { /* the one of two tables */
		ck_assert_int_eq(error, NEAP_EJSON);
		ck_assert_ptr_nonnull(strstr(why, "tiers[0]: has an infinite capacity, and DRAM is not"));
		return;
	}
	ck_assert_msg(error == mistakes[_i].error, "%s: %d %s", mistakes[_i].text, error, why);
	ck_assert_msg(strstr(why, mistakes[_i].says), "%s\nsays: %s\nnot:  %s", mistakes[_i].text, why, mistakes[_i].says);
	ck_assert_ptr_eq(strstr(why, "line "), why);
}
END_TEST

START_TEST(limits_hold)
{
	char text[4096], *to = text;
	to += sprintf(to, "{\"tiers\": [");
	for (unsigned i = 0; i <= NEAP_TIERS_MAX; i++)
		to += sprintf(to, "%s{\"type\": \"DRAM\", \"capacity\": 1, \"priority\": 1}", i ? ", " : "");
	sprintf(to, "]}");
	ck_assert_int_eq(read_text(text), NEAP_ELIMIT);
	ck_assert_ptr_nonnull(strstr(why, "tiers[16]: there are more than 16 tiers"));
	ck_assert_int_eq(neap_tier_config_read(text, NEAP_CONFIG_LENGTH_MAX + 1, &config, why, sizeof why), NEAP_ELIMIT);
	char deep[200];
	memset(deep, '[', sizeof deep);
	memcpy(deep, "{\"x\": ", 6);
	ck_assert_int_eq(neap_tier_config_read(deep, sizeof deep, &config, why, sizeof why), NEAP_ELIMIT);
	ck_assert(neap_tier_config_is_inline(" \n{}") && !neap_tier_config_is_inline("/etc/tiers.json") && !neap_tier_config_is_inline(""));
}
END_TEST

/* Every byte of a good document changed to some other, and every place cut: an answer each time, never a crash. */
START_TEST(damaged_documents_are_answered)
{
	static const char good[] = "{\"tiers\": [{\"type\": \"DRAM\", \"capacity\": \"1GB\", \"priority\": 1, \"tags\": [\"a\\u00e9\"]},"
	                           "{\"type\": \"STORAGE\", \"capacity\": 1e3, \"priority\": -1}], \"scheduler\": {\"evict_rate_k\": 1.5}}";
	static const char others[] = "\"{}[],:\\0-9.eE x\n\x80\xff";
	char *copy = malloc(sizeof good);
	for (size_t at = 0; at < sizeof good - 1; at++) {
		for (size_t i = 0; i < sizeof others; i++) {
			memcpy(copy, good, sizeof good);
			copy[at] = others[i];
			int error = neap_tier_config_read(copy, sizeof good - 1, &config, why, sizeof why);
			ck_assert(error == NEAP_OK || ((error == NEAP_EJSON || error == NEAP_ELIMIT) && why[0]));
		}
		char *cut = malloc(at + 1);
		memcpy(cut, good, at);
		ck_assert_int_ne(neap_tier_config_read(cut, at, &config, why, sizeof why), NEAP_OK);
		free(cut);
	}
	free(copy);
}
END_TEST

START_TEST(numbers_have_names)
{
	ck_assert_str_eq(neap_store_error_name(NEAP_STORE_NO_AVAILABLE_HANDLE), "NO_AVAILABLE_HANDLE");
	ck_assert_int_eq(NEAP_STORE_NO_AVAILABLE_HANDLE, -200);
	ck_assert_int_eq(NEAP_STORE_TIER_NOT_FOUND, -1501);
	ck_assert_str_eq(neap_store_error_text(0), "success");
	ck_assert_str_eq(neap_store_error_name(-9999), "UNKNOWN_ERROR");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tier configuration");
	TCase *cases = tcase_create("configuration");
	tcase_add_test(cases, sizes);
	tcase_add_test(cases, the_least_that_can_be_said);
	tcase_add_test(cases, all_that_can_be_said);
	tcase_add_test(cases, what_has_no_effect_is_said_once);
	tcase_add_loop_test(cases, a_mistake_is_named_with_its_place, 0, sizeof mistakes / sizeof *mistakes);
	tcase_add_test(cases, limits_hold);
	tcase_add_test(cases, damaged_documents_are_answered);
	tcase_add_test(cases, numbers_have_names);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
