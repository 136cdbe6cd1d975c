/* Registering memory: all or none, idempotent for the same range, overlap refused by name. */
#include "transports/classes.h"
#include "transports/region_fsm.h"
#include "transports/registry.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One range of a call on its way in. */
struct newcomer {
	uint64_t address, length;
	size_t position;            /* in the caller's list */
	enum neap_access access;
	struct neap_region *region; /* the one it joins or becomes */
	bool joins;                 /* the region exists, or an equal newcomer makes it */
};

/* --- life of the registry */

int neap_registry_create(struct neap_registry **registry_p, struct neap_reactor *home, uint32_t regions_max, uint32_t grants_max)
{
	*registry_p = NULL;
	if (regions_max == 0 || regions_max > NEAP_BUFFERS_MAX || grants_max == 0 || grants_max > NEAP_BUFFERS_MAX)
		return NEAP_EINVAL;
	struct neap_transports_classes classes;
	int error = neap_transports_classes_of(home, &classes);
	if (error)
		return error;
	struct neap_registry *registry = neap_allocate(home, sizeof *registry);
	if (!registry)
		return NEAP_ENOMEM;
	registry->home = home;
	registry->region_class = &classes.region->class_;
	registry->grant_class = &classes.grant->class_;
	registry->regions_max = regions_max;
	registry->grants_max = grants_max;
	registry->published_bytes_max = registry->published_piece_bytes = UINT64_MAX;
	registry->due_notes_tail = &registry->due_notes;
	neap_grace_init(registry);
	registry->regions = neap_allocate(home, regions_max * sizeof *registry->regions);
	registry->grants = neap_allocate(home, grants_max * sizeof *registry->grants);
	uint32_t core_index;
	error = registry->regions && registry->grants ? NEAP_OK : NEAP_ENOMEM;
	if (!error)
		error = neap_pool_create(&registry->notes, home, sizeof(struct neap_note), regions_max + grants_max);
	if (!error)
		error = neap_registry_add_core(registry, home, &core_index);
	if (error) {
		(void)neap_registry_destroy(registry);
		return error;
	}
	*registry_p = registry;
	return NEAP_OK;
}

int neap_registry_destroy(struct neap_registry *registry)
{
	if (!neap_registry_idle(registry))
		return NEAP_EBUSY;
	struct neap_reactor *home = registry->home;
	neap_ready_cancel(home, &registry->grace.ready);
	neap_timer_cancel(home, &registry->grace.timer);
	if (atomic_load(&registry->cores[0].turns))
		(void)neap_registry_remove_core(registry, 0, home);
	neap_index_free(registry);
	if (registry->notes.objects)
		neap_pool_destroy(&registry->notes);
	neap_release(home, registry->grants, registry->grants_max * sizeof *registry->grants);
	neap_release(home, registry->regions, registry->regions_max * sizeof *registry->regions);
	neap_release(home, registry, sizeof *registry);
	return NEAP_OK;
}

bool neap_registry_idle(const struct neap_registry *registry)
{
	return neap_grace_idle(registry) && !registry->due_notes;
}

uint32_t neap_registry_regions(const struct neap_registry *registry)
{
	return registry->regions_used - registry->regions_fencing;
}

uint64_t neap_registry_version(const struct neap_registry *registry)
{
	return registry->version;
}

uint32_t neap_registry_open_regions(const struct neap_registry *registry)
{
	return registry->open_regions;
}

void neap_registry_limit_document(struct neap_registry *registry, uint64_t fixed, uint64_t each, uint64_t piece_bytes, uint64_t bytes_max,
                                  const char *whose)
{
	registry->published_piece_bytes = piece_bytes ? piece_bytes : UINT64_MAX;
	registry->published_bytes = fixed;
	registry->published_overhead = each;
	registry->published_bytes_max = bytes_max;
	registry->published_max_whose = whose;
}

/* --- ids and slots */

static uint32_t slot_of(const struct neap_registry *registry, const struct neap_region *region)
{
	return (uint32_t)(region - registry->regions);
}

static neap_region_id id_of(const struct neap_registry *registry, const struct neap_region *region)
{
	return (uint64_t)atomic_load(&region->generation) << 32 | (slot_of(registry, region) + 1);
}

static struct neap_region *region_of(const struct neap_registry *registry, neap_region_id id)
{
	uint32_t slot = (uint32_t)id - 1, generation = (uint32_t)(id >> 32);
	if ((uint32_t)id == 0 || slot >= registry->regions_max || !(generation & 1) || !neap_region_live(registry, slot, generation))
		return NULL;
	return &registry->regions[slot];
}

static struct neap_region *take_slot(struct neap_registry *registry)
{
	struct neap_region *region = registry->free_regions;
	if (region)
		registry->free_regions = region->next_free;
	else
		region = &registry->regions[registry->regions_fresh++];
	registry->regions_used++;
	return region;
}

static void give_slot(struct neap_registry *registry, struct neap_region *region)
{
	region->next_free = registry->free_regions;
	registry->free_regions = region;
	registry->regions_used--;
}

/* --- what a document of OPEN regions takes */

static uint64_t digits(uint64_t number)
{
	uint64_t count = 1;
	while (number >= 10) {
		number /= 10;
		count++;
	}
	return count;
}

static uint64_t document_bytes(const struct neap_registry *registry, uint64_t address, uint64_t length)
{
	uint64_t pieces = (length - 1) / registry->published_piece_bytes + 1;
	return pieces * (registry->published_overhead + digits(address + length) + digits(length));
}

/* --- checks of newcomers */

static int refuse_range(int error, const struct neap_memory *memory, size_t position, const char *because, char *why, size_t why_size)
{
	snprintf(why, why_size, "range %zu (%p, %" PRIu64 " bytes): %s", position, memory->address, memory->length, because);
	return error;
}

static int check_range(const struct neap_memory *memory, size_t position, char *why, size_t why_size)
{
	uint64_t address = (uintptr_t)memory->address;
	if (address == 0)
		return refuse_range(NEAP_EINVAL, memory, position, "the address is NULL", why, why_size);
	if (memory->length == 0)
		return refuse_range(NEAP_EINVAL, memory, position, "the length is 0", why, why_size);
	if (memory->length > UINT64_MAX - address)
		return refuse_range(NEAP_EINVAL, memory, position, "it passes the end of the address space", why, why_size);
	if ((unsigned)memory->access > NEAP_GRANT_ONLY)
		return refuse_range(NEAP_EINVAL, memory, position, "access is not one of OPEN, CLOSED, GRANT_ONLY", why, why_size);
	if (memory->location && strnlen(memory->location, 32) == 32)
		return refuse_range(NEAP_EINVAL, memory, position, "the location is longer than 31 bytes", why, why_size);
	return NEAP_OK;
}

static int by_address(const void *a, const void *b)
{
	const struct newcomer *left = a, *right = b;
	if (left->address != right->address)
		return left->address < right->address ? -1 : 1;
	if (left->length != right->length)
		return left->length < right->length ? -1 : 1;
	return left->position < right->position ? -1 : left->position > right->position;
}

static int refuse_overlap(const struct newcomer *newcomer, uint64_t address, uint64_t length, const char *what, bool same, char *why,
                          size_t why_size)
{
	snprintf(why, why_size, "range %zu (0x%" PRIx64 ", %" PRIu64 " bytes) %s %s (0x%" PRIx64 ", %" PRIu64 " bytes)%s",
	         newcomer->position, newcomer->address, newcomer->length, same ? "equals" : "overlaps", what, address, length,
	         same ? " but asks for another access" : "; unregister that one first");
	return NEAP_EOVERLAP;
}

/* Against the newcomer before it, in address order: equal ones become one region. */
static int check_neighbour(struct newcomer *newcomer, const struct newcomer *before, char *why, size_t why_size)
{
	if (newcomer->address - before->address >= before->length)
		return NEAP_OK;
	bool same = newcomer->address == before->address && newcomer->length == before->length;
	if (!same || newcomer->access != before->access)
		return refuse_overlap(newcomer, before->address, before->length, "another range of this call", same, why, why_size);
	newcomer->joins = true;
	return NEAP_OK;
}

static int check_existing(struct neap_registry *registry, struct newcomer *newcomer, char *why, size_t why_size)
{
	const struct neap_index_entry *entry = neap_index_overlap(registry, newcomer->address, newcomer->length);
	if (!entry)
		return NEAP_OK;
	bool same = entry->address == newcomer->address && entry->length == newcomer->length;
	if (!same || (enum neap_access)entry->access != newcomer->access)
		return refuse_overlap(newcomer, entry->address, entry->length, "a registered range", same, why, why_size);
	newcomer->region = &registry->regions[entry->slot];
	newcomer->joins = true;
	return NEAP_OK;
}

static int check_room(const struct neap_registry *registry, uint32_t fresh, uint64_t document, char *why, size_t why_size)
{
	if (fresh > registry->regions_max - registry->regions_used) {
		snprintf(why, why_size, "%u more regions than regions_max (%u) allows: %u are registered or being released", fresh,
		         registry->regions_max, registry->regions_used);
		return NEAP_ELIMIT;
	}
	if (document > registry->published_bytes_max - registry->published_bytes) {
		snprintf(why, why_size,
		         "the descriptor that peers read would have %" PRIu64 " bytes, more than the %" PRIu64 " that %s",
		         registry->published_bytes + document, registry->published_bytes_max, registry->published_max_whose);
		return NEAP_ELIMIT;
	}
	return NEAP_OK;
}

/* Fills the sorted list; *fresh_p how many regions are new. Nothing is changed. */
static int check_all(struct neap_registry *registry, const struct neap_memory *memory, struct newcomer *newcomers, uint32_t count,
                     uint32_t *fresh_p, char *why, size_t why_size)
{
	for (uint32_t i = 0; i < count; i++) {
		int error = check_range(&memory[i], i, why, why_size);
		if (error)
			return error;
		newcomers[i] = (struct newcomer){.address = (uintptr_t)memory[i].address, .length = memory[i].length, .position = i,
		                                 .access = memory[i].access};
	}
	qsort(newcomers, count, sizeof *newcomers, by_address);
	uint64_t document = 0;
	*fresh_p = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct newcomer *newcomer = &newcomers[i];
		int error = i > 0 ? check_neighbour(newcomer, newcomer - 1, why, why_size) : NEAP_OK;
		if (!error && newcomer->joins)
			newcomer->region = newcomer[-1].region;
		else if (!error)
			error = check_existing(registry, newcomer, why, why_size);
		if (error)
			return error;
		if (newcomer->joins)
			continue;
		++*fresh_p;
		if (newcomer->access == NEAP_OPEN)
			document += document_bytes(registry, newcomer->address, newcomer->length);
	}
	return check_room(registry, *fresh_p, document, why, why_size);
}

/* --- taking them in */

static void make_region(struct neap_registry *registry, struct newcomer *newcomer, struct neap_index_entry *entry)
{
	struct neap_region *region = take_slot(registry);
	newcomer->region = region;
	region->registry = registry;
	region->address = newcomer->address;
	region->length = newcomer->length;
	region->access = newcomer->access;
	region->references = 1;
	region->notes = NULL;
	*entry = (struct neap_index_entry){
		.address = newcomer->address,
		.length = newcomer->length,
		.slot = slot_of(registry, region) & 0xffffffu,
		.access = (unsigned)newcomer->access & 0xffu,
		.generation = atomic_load(&region->generation) + 1,
	};
}

static void locate(struct neap_registry *registry, const struct neap_memory *memory, struct newcomer *newcomers, uint32_t count)
{
	size_t bytes = count * (sizeof(void *) + 32);
	void **addresses = neap_allocate(registry->home, bytes);
	uint32_t asked = 0, answered = 0;
	for (uint32_t i = 0; i < count; i++) {
		const char *given = memory[newcomers[i].position].location;
		if (newcomers[i].joins)
			continue;
		if (given && strcmp(given, "*") != 0)
			snprintf(newcomers[i].region->location, sizeof newcomers[i].region->location, "%s", given);
		else if (addresses)
			addresses[asked++] = memory[newcomers[i].position].address;
		else
			memcpy(newcomers[i].region->location, "*", 2);
	}
	if (!addresses)
		return;
	char (*locations)[32] = (char (*)[32])(void *)(addresses + count);
	neap_location_find(registry->home, addresses, asked, locations);
	for (uint32_t i = 0; i < count; i++) {
		const char *given = memory[newcomers[i].position].location;
		if (!newcomers[i].joins && (!given || strcmp(given, "*") == 0))
			memcpy(newcomers[i].region->location, locations[answered++], 32);
	}
	neap_release(registry->home, addresses, bytes);
}

/* The regions are in the index but dead: this makes them live. */
static void enliven(struct neap_registry *registry, struct newcomer *newcomers, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct newcomer *newcomer = &newcomers[i];
		if (newcomer->joins) {
			if (!newcomer->region)
				newcomer->region = newcomer[-1].region;
			newcomer->region->references++;
			continue;
		}
		neap_machine_begin(&newcomer->region->machine, registry->region_class);
		newcomer->region->kept = registry->keeper.took != NULL;
		atomic_fetch_add(&newcomer->region->generation, 1);
		if (newcomer->access == NEAP_OPEN) {
			registry->open_regions++;
			registry->published_bytes += document_bytes(registry, newcomer->address, newcomer->length);
			registry->version++;
		}
	}
	atomic_fetch_add(&registry->index_version, 1);
}

static void tell_keeper(const struct neap_registry *registry, const struct newcomer *newcomers, uint32_t count)
{
	const struct neap_registry_keeper *keeper = &registry->keeper;
	for (uint32_t i = 0; keeper->took && i < count; i++) {
		const struct neap_region *region = newcomers[i].region;
		if (!newcomers[i].joins)
			keeper->took(keeper->user, slot_of(registry, region), (void *)(uintptr_t)region->address, region->length, region->access);
	}
}

static int take_in(struct neap_registry *registry, const struct neap_memory *memory, struct newcomer *newcomers, uint32_t count,
                   uint32_t fresh)
{
	if (fresh > 0) {
		struct neap_index_entry *entries = neap_allocate(registry->home, fresh * sizeof *entries);
		if (!entries)
			return NEAP_ENOMEM;
		uint32_t made = 0;
		for (uint32_t i = 0; i < count; i++)
			if (!newcomers[i].joins)
				make_region(registry, &newcomers[i], &entries[made++]);
		int error = neap_index_insert(registry, entries, fresh);
		for (uint32_t i = 0; error && i < fresh; i++)
			give_slot(registry, &registry->regions[entries[i].slot]);
		neap_release(registry->home, entries, fresh * sizeof *entries);
		if (error)
			return error;
		locate(registry, memory, newcomers, count);
	}
	enliven(registry, newcomers, count);
	tell_keeper(registry, newcomers, count);
	return NEAP_OK;
}

int neap_registry_register(struct neap_registry *registry, const struct neap_memory *memory, size_t count, neap_region_id *ids,
                           char *why, size_t why_size)
{
	if (count == 0) {
		snprintf(why, why_size, "no range was given");
		return NEAP_EINVAL;
	}
	if (count > NEAP_BUFFERS_MAX) {
		snprintf(why, why_size, "%zu ranges in one call; at most %u", count, NEAP_BUFFERS_MAX);
		return NEAP_ELIMIT;
	}
	struct newcomer *newcomers = neap_allocate(registry->home, count * sizeof *newcomers);
	uint32_t fresh = 0;
	int error = newcomers ? check_all(registry, memory, newcomers, (uint32_t)count, &fresh, why, why_size) : NEAP_ENOMEM;
	if (!error)
		error = take_in(registry, memory, newcomers, (uint32_t)count, fresh);
	if (error == NEAP_ENOMEM)
		snprintf(why, why_size, "out of memory while registering %zu ranges; nothing was registered", count);
	for (size_t i = 0; !error && ids && i < count; i++)
		ids[newcomers[i].position] = id_of(registry, newcomers[i].region);
	neap_release(registry->home, newcomers, count * sizeof *newcomers);
	return error;
}

/* --- letting go */

static bool in_use(struct neap_registry *registry, const struct neap_region *region)
{
	uint32_t slot = slot_of(registry, region);
	bool used = false;
	neap_registry_look_begin(registry);
	for (uint32_t i = 0; i < NEAP_CORES_MAX && !used; i++) {
		struct neap_registry_core *core = &registry->cores[i];
		_Atomic uint32_t *uses = atomic_load(&core->uses);
		if (!uses)
			continue;
		used = atomic_load_explicit(&uses[slot], memory_order_acquire) > 0 ||
		       (atomic_load(&core->straddlers) > 0 && atomic_load(&core->straddle_from) < region->address + region->length &&
		        atomic_load(&core->straddle_to) > region->address);
	}
	neap_registry_look_end(registry);
	return used;
}

int neap_registry_unregister(struct neap_registry *registry, neap_region_id id, void (*released)(void *user), void *user)
{
	struct neap_region *region = region_of(registry, id);
	if (!region)
		return NEAP_ESTALE;
	if (region->references == 1 && in_use(registry, region))
		return NEAP_EBUSY;
	int error = neap_note_take(registry, &region->notes, released, user);
	if (error)
		return error;
	if (--region->references > 0)
		return NEAP_OK;
	/* Here and now, not in the machine's action: from this return on nothing new may begin. */
	atomic_fetch_add(&region->generation, 1);
	atomic_fetch_add(&registry->index_version, 1);
	registry->index_live--;
	registry->regions_fencing++;
	if (region->access == NEAP_OPEN) {
		registry->open_regions--;
		registry->published_bytes -= document_bytes(registry, region->address, region->length);
		registry->version++;
	}
	neap_step(&region->machine, region_on_UNREGISTER, 0);
	if (region->kept)
		registry->keeper.ended(registry->keeper.user, slot_of(registry, region));
	return NEAP_OK;
}

void neap_registry_keep(struct neap_registry *registry, const struct neap_registry_keeper *keeper)
{
	registry->keeper = *keeper;
}

void neap_registry_let_go(struct neap_registry *registry, uint32_t slot)
{
	struct neap_region *region = &registry->regions[slot];
	region->kept = false;
	neap_step(&region->machine, region_on_LET_GO, 0);
}

const char *neap_registry_location(const struct neap_registry *registry, uint32_t slot)
{
	return registry->regions[slot].location;
}

uint32_t neap_registry_slot(const struct neap_registry *registry, neap_region_id id)
{
	const struct neap_region *region = region_of(registry, id);
	return region ? slot_of(registry, region) : UINT32_MAX;
}

static struct neap_region *region_of_machine(struct neap_machine *machine)
{
	return (struct neap_region *)(void *)((unsigned char *)machine - offsetof(struct neap_region, machine));
}

static void passed(struct neap_registry *registry, struct neap_grace_item *item)
{
	(void)registry;
	struct neap_region *region = (struct neap_region *)(void *)((unsigned char *)item - offsetof(struct neap_region, grace));
	neap_step(&region->machine, region->kept ? region_on_PASSED_KEPT : region_on_PASSED, 0);
}

static void do_fence(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_region *region = region_of_machine(machine);
	region->grace.passed = passed;
	neap_grace_add(region->registry, &region->grace);
}

static void do_release(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_region *region = region_of_machine(machine);
	region->registry->regions_fencing--;
	/* Notes are called from the grace period's turn, outside of actions. */
	if (region->notes)
		neap_ready_again(region->registry->home, &region->registry->grace.ready);
	neap_notes_due(region->registry, &region->notes);
	give_slot(region->registry, region);
}

neap_action_func *const neap_region_actions[] = {
	[region_do_fence] = do_fence,
	[region_do_release] = do_release,
};

/* --- questions */

int neap_registry_find_exact(struct neap_registry *registry, const void *address, uint64_t length, neap_region_id *id_p)
{
	const struct neap_index_entry *entry = neap_index_at(atomic_load(&registry->index), (uintptr_t)address);
	if (!entry || entry->address != (uintptr_t)address || entry->length != length ||
	    !neap_region_live(registry, entry->slot, entry->generation))
		return NEAP_ENOTREG;
	*id_p = id_of(registry, &registry->regions[entry->slot]);
	return NEAP_OK;
}

int neap_registry_info(struct neap_registry *registry, neap_region_id id, struct neap_region_info *info_p)
{
	const struct neap_region *region = region_of(registry, id);
	if (!region)
		return NEAP_ESTALE;
	*info_p = (struct neap_region_info){.address = region->address, .length = region->length, .references = region->references,
	                                    .access = region->access};
	memcpy(info_p->location, region->location, sizeof info_p->location);
	return NEAP_OK;
}

bool neap_registry_next_open(const struct neap_registry *registry, struct neap_registry_cursor *cursor, uint64_t *address_p,
                             uint64_t *length_p)
{
	const struct neap_index *index = atomic_load(&registry->index);
	for (; index && cursor->leaf < index->count; cursor->leaf++, cursor->entry = 0) {
		const struct neap_index_leaf *leaf = index->leaves[cursor->leaf].leaf;
		while (cursor->entry < leaf->count) {
			const struct neap_index_entry *entry = &leaf->entries[cursor->entry++];
			if (entry->access != NEAP_OPEN || !neap_region_live(registry, entry->slot, entry->generation))
				continue;
			*address_p = entry->address;
			*length_p = entry->length;
			cursor->slot = entry->slot;
			cursor->location = registry->regions[entry->slot].location;
			return true;
		}
	}
	return false;
}
