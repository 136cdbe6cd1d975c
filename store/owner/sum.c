/* Sums the bytes of a value, a piece a turn, so that a large one delays nobody. */
#include "store/owner/inside.h"
#include "transports/checksum.h"

static void run(struct neap_ready *ready)
{
	struct neap_sum *sum = (struct neap_sum *)ready;
	struct neap_reactor *reactor = neap_machine_reactor(sum->machine);
	uint64_t piece = sum->wanted ? sum->size - sum->done : 0;
	if (piece > NEAP_SUM_PIECE)
		piece = NEAP_SUM_PIECE;
	if (piece)
		sum->crc = neap_crc32c(sum->crc, sum->bytes + sum->done, (size_t)piece);
	sum->done += piece;
	if (sum->wanted && sum->done < sum->size) {
		neap_ready_again(reactor, ready);
		return;
	}
	bool right = !sum->has_expected || sum->crc == sum->expected;
	neap_step(sum->machine, right ? sum->on_right : sum->on_wrong, sum->crc);
}

void neap_sum_begin(struct neap_sum *sum, struct neap_owner *owner, struct neap_handle *handle, uint64_t size)
{
	sum->ready.run = run;
	sum->bytes = neap_handle_address(handle);
	sum->size = size;
	sum->done = 0;
	sum->crc = 0;
	sum->wanted = sum->bytes && (sum->wanted || sum->has_expected || owner->options.verify);
	neap_ready_again(owner->reactor, &sum->ready);
}

void neap_sum_cancel(struct neap_sum *sum, struct neap_reactor *reactor)
{
	neap_ready_cancel(reactor, &sum->ready);
}
