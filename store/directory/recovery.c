#include "store/directory/recovery.h"
#include "store/directory/directory_life_fsm.h"

static struct neap_recovery *recovery_of(const struct neap_machine *machine)
{
	return (struct neap_recovery *)(uintptr_t)((const char *)machine - offsetof(struct neap_recovery, machine));
}

static void do_recover(struct neap_machine *machine, uint64_t argument)
{
	const struct neap_recovery *recovery = recovery_of(machine);
	(void)argument;
	neap_log(neap_machine_reactor(machine), NEAP_LOG_INFO, "directory", "recovering: for %llu ms no key is said not to exist",
	         (unsigned long long)(recovery->recovery_ns / 1000000));
}

static void do_listen(struct neap_machine *machine, uint64_t argument)
{
	const struct neap_recovery *recovery = recovery_of(machine);
	(void)argument;
	if (recovery->owing == 0)
		(void)neap_post_first(machine, directory_life_on_HEARD_ALL, 0);
	else
		neap_log(neap_machine_reactor(machine), NEAP_LOG_INFO, "directory", "recovering: %u clients are still announcing",
		         recovery->owing);
}

static void do_serve(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	neap_log(neap_machine_reactor(machine), NEAP_LOG_INFO, "directory", "serving");
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct neap_recovery *recovery = recovery_of(machine);
	(void)argument;
	recovery->given_up += recovery->owing;
	neap_log(neap_machine_reactor(machine), NEAP_LOG_WARNING, "directory",
	         "serving, although %u clients have not ended their full announcement within %llu ms", recovery->owing,
	         (unsigned long long)(recovery->announcements_ns / 1000000));
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	neap_log(neap_machine_reactor(machine), NEAP_LOG_INFO, "directory", "closed");
}

static neap_action_func *const actions[] = {
	[directory_life_do_recover] = do_recover, [directory_life_do_listen] = do_listen, [directory_life_do_serve] = do_serve,
	[directory_life_do_give_up] = do_give_up, [directory_life_do_close] = do_close,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_recovery *recovery = recovery_of(machine);
	return now_ns + (timeout_class == directory_life_timeout_RECOVERY ? recovery->recovery_ns : recovery->announcements_ns);
}

/* In production: the event is dropped, the state and its deadline stay. */
static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)machine;
	(void)event;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_directory_life,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_recovery),
	.due_ns = due_ns,
	.broken = broken,
};

int neap_recovery_begin(struct neap_recovery *recovery, struct neap_reactor *reactor, bool empty, uint64_t recovery_ns,
                        uint64_t announcements_ns)
{
	struct neap_reactor_class *class_ = NULL;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	recovery->recovery_ns = recovery_ns;
	recovery->announcements_ns = announcements_ns;
	recovery->owing = 0;
	neap_machine_begin(&recovery->machine, &class_->class_);
	neap_step(&recovery->machine, empty ? directory_life_on_START_EMPTY : directory_life_on_START, 0);
	return NEAP_OK;
}

void neap_recovery_end(struct neap_recovery *recovery)
{
	neap_step(&recovery->machine, directory_life_on_CLOSE, 0);
	neap_machine_end(&recovery->machine);
}

void neap_recovery_owes(struct neap_recovery *recovery)
{
	recovery->owing++;
}

void neap_recovery_paid(struct neap_recovery *recovery)
{
	if (--recovery->owing == 0)
		neap_step(&recovery->machine, directory_life_on_HEARD_ALL, 0);
}

bool neap_recovering(const struct neap_recovery *recovery)
{
	uint8_t at = recovery->machine.state;
	return at == directory_life_NEW || at == directory_life_RECOVERING || at == directory_life_HEARING;
}
