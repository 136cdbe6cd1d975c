/* Outcomes: from what happened to numbers, and from numbers to a sentence a person can act on. */
#include "transports/engine_state.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The error number of each cause. */
static int error_of(enum neap_cause cause, enum neap_status status)
{
	switch (cause) {
	case NEAP_CAUSE_NONE: return status == NEAP_COMPLETED ? NEAP_OK : NEAP_EINTERNAL;
	case NEAP_CAUSE_CANCELED_BY_USER: return NEAP_ECANCELED;
	case NEAP_CAUSE_BATCH_DEADLINE:
	case NEAP_CAUSE_NO_PROGRESS:
	case NEAP_CAUSE_CONNECT_TIMEOUT: return NEAP_ETIMEDOUT;
	case NEAP_CAUSE_CONNECT_FAILED: return NEAP_ESOCKET;
	case NEAP_CAUSE_NAME_UNRESOLVED: return NEAP_EDNS;
	case NEAP_CAUSE_DESCRIPTOR_FAILED: return NEAP_EMETADATA;
	case NEAP_CAUSE_RANGE_NOT_REMOTE:
	case NEAP_CAUSE_REFUSED_BY_PEER: return NEAP_ENOTREG;
	case NEAP_CAUSE_GRANT_REFUSED: return NEAP_EGRANT;
	case NEAP_CAUSE_PEER_RESET:
	case NEAP_CAUSE_PEER_CLOSED: return NEAP_EPEER;
	case NEAP_CAUSE_PROTOCOL: return NEAP_EPROTO;
	case NEAP_CAUSE_OTHER_INSTANCE: return NEAP_EINSTANCE;
	case NEAP_CAUSE_CHECKSUM: return NEAP_ECORRUPT;
	case NEAP_CAUSE_SEGMENT_CLOSED:
	case NEAP_CAUSE_ENGINE_CLOSED: return NEAP_ECLOSED;
	case NEAP_CAUSE_LOCAL_OVERLAP:
	case NEAP_CAUSE_LOCAL_MEMORY: return NEAP_EINVAL;
	case NEAP_CAUSE_INTERNAL: break;
	}
	return NEAP_EINTERNAL;
}

void neap_outcome_set(struct neap_outcome *outcome, enum neap_status status, enum neap_effect effect, enum neap_cause cause,
                      int system_errno, uint64_t bytes)
{
	*outcome = (struct neap_outcome){
		.status = (uint8_t)status,
		.effect = (uint8_t)effect,
		.buffer = NEAP_BUFFER_YOURS,
		.cause = (uint8_t)cause,
		.error = (int16_t)error_of(cause, status),
		.system_errno = (int16_t)system_errno,
		.bytes = effect == NEAP_EFFECT_ALL || effect == NEAP_EFFECT_PARTIAL ? bytes : 0,
	};
}

static void say_cause(const struct neap_engine_options *options, const struct neap_outcome *outcome, char *text, size_t size)
{
	switch ((enum neap_cause)outcome->cause) {
	case NEAP_CAUSE_NONE: snprintf(text, size, "done"); break;
	case NEAP_CAUSE_CANCELED_BY_USER: snprintf(text, size, "canceled"); break;
	case NEAP_CAUSE_BATCH_DEADLINE: snprintf(text, size, "the batch's deadline passed"); break;
	case NEAP_CAUSE_NO_PROGRESS:
		snprintf(text, size, "no byte moved for %u ms (progress_timeout_ms)", options->progress_timeout_ms);
		break;
	case NEAP_CAUSE_CONNECT_FAILED: snprintf(text, size, "no connection"); break;
	case NEAP_CAUSE_CONNECT_TIMEOUT:
		snprintf(text, size, "no connection within %u ms (connect_timeout_ms)", options->connect_timeout_ms);
		break;
	case NEAP_CAUSE_NAME_UNRESOLVED: snprintf(text, size, "the peer's host name does not resolve"); break;
	case NEAP_CAUSE_DESCRIPTOR_FAILED: snprintf(text, size, "the peer's descriptor could not be read from its handshake port"); break;
	case NEAP_CAUSE_RANGE_NOT_REMOTE: snprintf(text, size, "the range is not inside one registered buffer there"); break;
	case NEAP_CAUSE_REFUSED_BY_PEER: snprintf(text, size, "the peer refused the address"); break;
	case NEAP_CAUSE_GRANT_REFUSED: snprintf(text, size, "the grant is missing, ended, or does not cover the range"); break;
	case NEAP_CAUSE_PEER_RESET: snprintf(text, size, "the peer reset the connection"); break;
	case NEAP_CAUSE_PEER_CLOSED: snprintf(text, size, "the peer closed the connection"); break;
	case NEAP_CAUSE_PROTOCOL: snprintf(text, size, "the peer's answer is not what the protocol says"); break;
	case NEAP_CAUSE_OTHER_INSTANCE: snprintf(text, size, "another process answers at the peer's address: it was restarted"); break;
	case NEAP_CAUSE_CHECKSUM: snprintf(text, size, "the checksum does not match"); break;
	case NEAP_CAUSE_SEGMENT_CLOSED: snprintf(text, size, "the segment was closed"); break;
	case NEAP_CAUSE_ENGINE_CLOSED: snprintf(text, size, "the engine was closed"); break;
	case NEAP_CAUSE_LOCAL_OVERLAP: snprintf(text, size, "source and target overlap"); break;
	case NEAP_CAUSE_LOCAL_MEMORY: snprintf(text, size, "the local buffer is not mapped as needed"); break;
	case NEAP_CAUSE_INTERNAL: snprintf(text, size, "an internal error; the log has more"); break;
	}
}

static void say_effect(const struct neap_request *request, const struct neap_outcome *outcome, char *text, size_t size)
{
	const char *where = request->opcode == NEAP_WRITE ? "the peer's memory" : "the local buffer";
	*text = 0;
	if (outcome->effect == NEAP_EFFECT_PARTIAL)
		snprintf(text, size, "; the first %" PRIu64 " bytes are in %s", outcome->bytes, where);
	else if (outcome->effect == NEAP_EFFECT_UNKNOWN)
		snprintf(text, size, "; %s may have changed", where);
}

int neap_outcome_text(struct neap_engine *engine, const struct neap_request *request, const struct neap_outcome *outcome, char *text,
                      size_t size)
{
	static const char *const states[] = {"waiting", "under way", "invalid", "canceled", "completed", "timed out", "failed"};
	char cause[128] = "", system_text[96] = "", effect[96], reason[64];
	if (!engine || !request || !outcome || (!text && size))
		return NEAP_EINVAL;
	const struct neap_segment *segment = neap_segment_find(engine, request->segment);
	say_cause(&engine->options, outcome, cause, sizeof cause);
	if (outcome->system_errno)
		snprintf(system_text, sizeof system_text, ": %s", strerror_r(outcome->system_errno, reason, sizeof reason));
	say_effect(request, outcome, effect, sizeof effect);
	return snprintf(text, size, "%s of %" PRIu64 " bytes %s %s at 0x%" PRIx64 " %s: %s%s%s",
	                request->opcode == NEAP_WRITE ? "write" : "read", request->length, request->opcode == NEAP_WRITE ? "to" : "from",
	                segment ? segment->name : "a closed segment", request->target_offset,
	                states[outcome->status <= NEAP_FAILED ? outcome->status : NEAP_INVALID], cause, system_text, effect);
}
