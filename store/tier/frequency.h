/* How often keys are asked for, in 4 bits each: a count-min sketch of four rows that forgets half of everything now and then
 * (TinyLFU, Einziger et al. 2017). And what that means for where an object should lie. Pure but for the table's memory. */
#ifndef NEAP_STORE_TIER_FREQUENCY_H
#define NEAP_STORE_TIER_FREQUENCY_H

#include "reactor/core.h"

#define NEAP_FREQUENCY_MAX 15u

struct neap_frequency {
	struct neap_reactor *reactor;
	uint64_t *words;      /* 16 counters each */
	uint32_t word_mask;
	uint32_t aging;       /* words still to be halved, from the front; 0: none */
	uint32_t added, age_after;
};

/* For about `keys` keys, 16 .. 2^30. NEAP_EINVAL, NEAP_ENOMEM. */
int neap_frequency_create(struct neap_frequency *frequency, struct neap_reactor *reactor, uint32_t keys);
void neap_frequency_destroy(struct neap_frequency *frequency);

/* `hash` is well mixed, 64 bits. Halving is spread over the calls that follow the one that makes it due. */
void neap_frequency_add(struct neap_frequency *frequency, uint64_t hash);
uint32_t neap_frequency_of(const struct neap_frequency *frequency, uint64_t hash); /* 0..15, never too low but for the forgetting */

/* --- where an object should lie --------------------------------------------------------------------------------------- */

struct neap_move_rules {
	uint32_t offload_freq; /* asked for more often than this: worth a copy in the slow tier; default 2 */
	uint32_t onboard_freq; /* more often than this: worth a place in the fast tier; default 4 */
	double onboard_usage;  /* but only while the fast tier is less full than this; default 0.50 */
};
#define NEAP_MOVE_RULES ((struct neap_move_rules){2, 4, 0.50})

struct neap_move_facts {
	uint32_t frequency;
	bool in_fast, in_slow;
	uint64_t bytes;
	uint64_t fast_used, fast_capacity, slow_free; /* slow_free 0: there is no slow tier */
};

enum neap_move_way {
	NEAP_MOVE_NONE,
	NEAP_MOVE_COPY_DOWN, /* copy to the slow tier, keep the fast copy */
	NEAP_MOVE_UP,        /* copy to the fast tier, then drop the slow copy */
};

enum neap_move_way neap_move_on_access(const struct neap_move_rules *rules, const struct neap_move_facts *facts);

#endif
