/* Who wants to know of which key. */
#include "metadata/backend.h"
#include <string.h>

uint64_t neap_backend_hash(const char *key, size_t length)
{
	uint64_t value = UINT64_C(14695981039346656037);
	for (size_t i = 0; i < length; i++)
		value = (value ^ (unsigned char)key[i]) * UINT64_C(1099511628211);
	return value;
}

static void link_watch(struct neap_backend_watch **list, struct neap_backend_watch *watch)
{
	watch->next = *list;
	watch->slot = list;
	if (*list)
		(*list)->slot = &watch->next;
	*list = watch;
}

void neap_backend_unwatch(struct neap_backend_watch *watch)
{
	if (!watch->slot)
		return;
	*watch->slot = watch->next;
	if (watch->next)
		watch->next->slot = watch->slot;
	watch->slot = NULL;
}

bool neap_watches_any(const struct neap_watches *watches, const char *key)
{
	uint64_t wanted = neap_backend_hash(key, strlen(key));
	const struct neap_backend_watch *watch = watches->buckets[wanted % NEAP_WATCH_BUCKETS];
	while (watch && watch->hash != wanted)
		watch = watch->next;
	return watch != NULL;
}

void neap_watches_add(struct neap_watches *watches, const char *key, struct neap_backend_watch *watch)
{
	neap_backend_unwatch(watch);
	watch->hash = neap_backend_hash(key, strlen(key));
	link_watch(&watches->buckets[watch->hash % NEAP_WATCH_BUCKETS], watch);
}

/* One at a time from the list: a callee may end others, or begin to watch again. */
static void tell_list(struct neap_backend_watch **list)
{
	while (*list) {
		struct neap_backend_watch *watch = *list;
		neap_backend_unwatch(watch);
		watch->changed(watch);
	}
}

void neap_watches_tell(struct neap_watches *watches, const char *key, size_t length)
{
	uint64_t wanted = neap_backend_hash(key, length);
	struct neap_backend_watch *told = NULL, *next;
	for (struct neap_backend_watch *watch = watches->buckets[wanted % NEAP_WATCH_BUCKETS]; watch; watch = next) {
		next = watch->next;
		if (watch->hash != wanted)
			continue;
		neap_backend_unwatch(watch);
		link_watch(&told, watch);
	}
	tell_list(&told);
}

void neap_watches_tell_all(struct neap_watches *watches)
{
	struct neap_backend_watch *told = NULL;
	for (uint32_t i = 0; i < NEAP_WATCH_BUCKETS; i++)
		while (watches->buckets[i]) {
			struct neap_backend_watch *watch = watches->buckets[i];
			neap_backend_unwatch(watch);
			link_watch(&told, watch);
		}
	tell_list(&told);
}

void neap_watches_drop_all(struct neap_watches *watches)
{
	for (uint32_t i = 0; i < NEAP_WATCH_BUCKETS; i++)
		while (watches->buckets[i])
			neap_backend_unwatch(watches->buckets[i]);
}
