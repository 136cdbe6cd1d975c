/* Calls owed to users when a fence has ended. They are made after the grace period's piece, outside of any action, so that the callee
 * may do what it likes. */
#include "transports/registry.h"

int neap_note_take(struct neap_registry *registry, struct neap_note **list, void (*call)(void *user), void *user)
{
	if (!call)
		return NEAP_OK;
	struct neap_note *note = neap_pool_take(&registry->notes);
	if (!note)
		return NEAP_EAGAIN;
	*note = (struct neap_note){.next = *list, .call = call, .user = user};
	*list = note;
	return NEAP_OK;
}

void neap_notes_due(struct neap_registry *registry, struct neap_note **list)
{
	if (!*list)
		return;
	*registry->due_notes_tail = *list;
	while (*registry->due_notes_tail)
		registry->due_notes_tail = &(*registry->due_notes_tail)->next;
	*list = NULL;
}

void neap_notes_call(struct neap_registry *registry)
{
	while (registry->due_notes) {
		struct neap_note note = *registry->due_notes;
		neap_pool_give(&registry->notes, registry->due_notes);
		registry->due_notes = note.next;
		if (!note.next)
			registry->due_notes_tail = &registry->due_notes;
		note.call(note.user);
	}
}
