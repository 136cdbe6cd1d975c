/* What is there under a key, for those who want to know and not to have it. */
#include "store/owner/inside.h"

void neap_owner_look_up(struct neap_owner *owner, const struct neap_key *key, struct neap_key_facts *facts_p)
{
	const struct neap_key_entry *entry = key->length > 0 && key->length <= NEAP_KEY_MAX ? neap_key_entry_find(owner, key) : NULL;
	*facts_p = (struct neap_key_facts){0};
	if (entry && entry->handle) {
		facts_p->exists = true;
		facts_p->in_memory = neap_handle_address(entry->handle) != NULL;
		facts_p->write_id = entry->write_id;
		facts_p->size = entry->handle->extent.size;
		facts_p->generation = entry->generation;
		facts_p->tier = neap_tiers_index(owner->tiers, entry->handle->tier);
		facts_p->has_crc = entry->has_crc;
		facts_p->crc = entry->crc;
	} else if (entry && entry->pending) {
		facts_p->pending = true;
		facts_p->write_id = entry->pending_move ? 0 : entry->pending;
	}
}
