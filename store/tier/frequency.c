#include "store/tier/frequency.h"

#define ROWS 4u
#define AGED_A_CALL 8u
#define ADDS_PER_KEY 10u

int neap_frequency_create(struct neap_frequency *frequency, struct neap_reactor *reactor, uint32_t keys)
{
	*frequency = (struct neap_frequency){0};
	if (keys < 16 || keys > 1u << 30)
		return NEAP_EINVAL;
	uint32_t words = 1;
	while (words < keys / 4)
		words *= 2;
	frequency->words = neap_allocate(reactor, words * sizeof *frequency->words);
	if (!frequency->words)
		return NEAP_ENOMEM;
	frequency->reactor = reactor;
	frequency->word_mask = words - 1;
	frequency->age_after = keys > UINT32_MAX / ADDS_PER_KEY ? UINT32_MAX : keys * ADDS_PER_KEY;
	return NEAP_OK;
}

void neap_frequency_destroy(struct neap_frequency *frequency)
{
	if (frequency->words)
		neap_release(frequency->reactor, frequency->words, ((size_t)frequency->word_mask + 1) * sizeof *frequency->words);
	*frequency = (struct neap_frequency){0};
}

/* Row `row`'s counter for this hash: a word of the table, and one of the four of its sixteen that belong to the row. */
static uint64_t *counter_of(const struct neap_frequency *frequency, uint64_t hash, uint32_t row, uint32_t *shift_p)
{
	uint64_t mixed = hash + row * UINT64_C(0x9e3779b97f4a7c15);
	mixed = (mixed ^ mixed >> 32) * UINT64_C(0xd6e8feb86659fd93);
	*shift_p = 4 * (4 * row + (uint32_t)(mixed >> 62));
	return &frequency->words[(uint32_t)(mixed >> 20) & frequency->word_mask];
}

static void age(struct neap_frequency *frequency)
{
	for (uint32_t i = 0; i < AGED_A_CALL && frequency->aging > 0; i++) {
		uint64_t *word = &frequency->words[--frequency->aging];
		*word = *word >> 1 & UINT64_C(0x7777777777777777);
	}
}

void neap_frequency_add(struct neap_frequency *frequency, uint64_t hash)
{
	bool counted = false;
	for (uint32_t row = 0; row < ROWS; row++) {
		uint32_t shift;
		uint64_t *word = counter_of(frequency, hash, row, &shift);
		if ((*word >> shift & NEAP_FREQUENCY_MAX) == NEAP_FREQUENCY_MAX)
			continue;
		*word += UINT64_C(1) << shift;
		counted = true;
	}
	if (counted && ++frequency->added >= frequency->age_after) {
		frequency->added /= 2;
		frequency->aging = frequency->word_mask + 1;
	}
	age(frequency);
}

uint32_t neap_frequency_of(const struct neap_frequency *frequency, uint64_t hash)
{
	uint32_t least = NEAP_FREQUENCY_MAX;
	for (uint32_t row = 0; row < ROWS; row++) {
		uint32_t shift;
		uint64_t *word = counter_of(frequency, hash, row, &shift);
		uint32_t count = (uint32_t)(*word >> shift) & NEAP_FREQUENCY_MAX;
		if (count < least)
			least = count;
	}
	return least;
}

enum neap_move_way neap_move_on_access(const struct neap_move_rules *rules, const struct neap_move_facts *facts)
{
	if (facts->in_fast)
		return !facts->in_slow && facts->frequency > rules->offload_freq && facts->slow_free >= facts->bytes ? NEAP_MOVE_COPY_DOWN
		                                                                                                    : NEAP_MOVE_NONE;
	if (!facts->in_slow || facts->frequency <= rules->onboard_freq)
		return NEAP_MOVE_NONE;
	double after = (double)facts->fast_used + (double)facts->bytes;
	bool has_room = (double)facts->fast_used < rules->onboard_usage * (double)facts->fast_capacity;
	return has_room && after <= (double)facts->fast_capacity ? NEAP_MOVE_UP : NEAP_MOVE_NONE;
}
