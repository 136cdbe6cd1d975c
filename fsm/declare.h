/* Template: turns a machine's macros into enumerations and, where FSM_DEFINE is set, into its table.
 *
 * A machine lives in NAME_fsm.h, which sets the macros below and then includes this file; NAME_fsm.c sets FSM_DEFINE and includes
 * NAME_fsm.h, and holds nothing else, so that the table links on its own into the explorer and the fuzzers.
 *
 *   #define FSM          stream_connect                  // identifier; also the name tools show
 *   #define FSM_PURPOSE  "opens one byte stream"
 *   #define FSM_TIMEOUTS(T) T(CONNECT)                   // beside NONE
 *   #define FSM_STATES(S) S(IDLE, WORK, NONE, "a call to connect") ...   // kind: WORK, WAIT, PARENT, FINAL (neap/fsm.h)
 *   #define FSM_EVENTS(E) E(START) E(CONNECTED) ...      // TIMEOUT is there already, as the first
 *   #define FSM_ACTIONS(A) A(connect) ...                // beside none
 *   #define FSM_ROWS(R)                                  // one row a state, one cell an event, TIMEOUT first
 *           R(IDLE, NEVER, GO(CONNECTING, connect), SKIP, ...)
 *   #define FSM_DATA_PATH 1                              // optional: trace to the data-path ring
 *
 * yields stream_connect_IDLE, stream_connect_on_START, stream_connect_do_connect, stream_connect_timeout_CONNECT and
 * `extern const struct neap_fsm neap_fsm_stream_connect`. A row with too few or too many cells, a missing row or an unknown
 * name does not compile. No include guard: it is included once a machine. */
#include <neap/fsm.h>

#ifndef FSM_JOIN
#define FSM_JOIN_(a, b) a##b
#define FSM_JOIN(a, b) FSM_JOIN_(a, b)
#define FSM_TEXT_(a) #a
#define FSM_TEXT(a) FSM_TEXT_(a)
#endif

#define FSM_AS_STATE(state, kind, timeout, waits_for) FSM_JOIN(FSM, _##state),
#define FSM_AS_EVENT(event) FSM_JOIN(FSM, _on_##event),
#define FSM_AS_ACTION(action) FSM_JOIN(FSM, _do_##action),
#define FSM_AS_TIMEOUT(timeout) FSM_JOIN(FSM, _timeout_##timeout),

enum { FSM_STATES(FSM_AS_STATE) FSM_JOIN(FSM, _state_count) };
enum { FSM_AS_EVENT(TIMEOUT) FSM_EVENTS(FSM_AS_EVENT) FSM_JOIN(FSM, _event_count) };
enum { FSM_AS_ACTION(none) FSM_ACTIONS(FSM_AS_ACTION) FSM_JOIN(FSM, _action_count) };
enum { FSM_AS_TIMEOUT(NONE) FSM_TIMEOUTS(FSM_AS_TIMEOUT) FSM_JOIN(FSM, _timeout_count) };

extern const struct neap_fsm FSM_JOIN(neap_fsm_, FSM);

#ifdef FSM_DEFINE

#define FSM_AS_TIMEOUT_OF(state, kind, timeout, waits_for) FSM_JOIN(FSM, _timeout_of_##state) = FSM_JOIN(FSM, _timeout_##timeout),
enum { FSM_STATES(FSM_AS_TIMEOUT_OF) };

#define GO(state, action) \
	{NEAP_CELL_GO, FSM_JOIN(FSM, _##state), FSM_JOIN(FSM, _do_##action), FSM_JOIN(FSM, _timeout_of_##state)}
#define SKIP {NEAP_CELL_IGNORE, 0, 0, 0}
#define NEVER {NEAP_CELL_IMPOSSIBLE, 0, 0, 0}

#define FSM_ROW_IS_TOTAL(state, ...)                                                                         \
	_Static_assert(sizeof((const struct neap_cell[]){__VA_ARGS__}) / sizeof(struct neap_cell) ==             \
	                   FSM_JOIN(FSM, _event_count), "row " #state " must have one cell for each event");
FSM_ROWS(FSM_ROW_IS_TOTAL)

#define FSM_ROW_COUNT(state, ...) +1
_Static_assert(0 FSM_ROWS(FSM_ROW_COUNT) == FSM_JOIN(FSM, _state_count), "each state needs exactly one row");

#define FSM_AS_ROW(state, ...) [FSM_JOIN(FSM, _##state)] = {__VA_ARGS__},
static const struct neap_cell FSM_JOIN(FSM, _cells)[FSM_JOIN(FSM, _state_count)][FSM_JOIN(FSM, _event_count)] = {
	FSM_ROWS(FSM_AS_ROW)};

#define FSM_AS_STATE_INFO(state, kind, timeout, waits_for) \
	{#state, waits_for, NEAP_STATE_##kind, FSM_JOIN(FSM, _timeout_##timeout)},
#define FSM_AS_TEXT(name) #name,
static const struct neap_state_info FSM_JOIN(FSM, _state_infos)[] = {FSM_STATES(FSM_AS_STATE_INFO)};
static const char *const FSM_JOIN(FSM, _event_names)[] = {FSM_AS_TEXT(TIMEOUT) FSM_EVENTS(FSM_AS_TEXT)};
static const char *const FSM_JOIN(FSM, _action_names)[] = {FSM_AS_TEXT(none) FSM_ACTIONS(FSM_AS_TEXT)};
static const char *const FSM_JOIN(FSM, _timeout_names)[] = {FSM_AS_TEXT(NONE) FSM_TIMEOUTS(FSM_AS_TEXT)};

#ifndef FSM_DATA_PATH
#define FSM_DATA_PATH 0
#endif

const struct neap_fsm FSM_JOIN(neap_fsm_, FSM) = {
	.name = FSM_TEXT(FSM),
	.purpose = FSM_PURPOSE,
	.cells = &FSM_JOIN(FSM, _cells)[0][0],
	.states = FSM_JOIN(FSM, _state_infos),
	.event_names = FSM_JOIN(FSM, _event_names),
	.action_names = FSM_JOIN(FSM, _action_names),
	.timeout_names = FSM_JOIN(FSM, _timeout_names),
	.state_count = FSM_JOIN(FSM, _state_count),
	.event_count = FSM_JOIN(FSM, _event_count),
	.action_count = FSM_JOIN(FSM, _action_count),
	.timeout_count = FSM_JOIN(FSM, _timeout_count),
	.data_path = FSM_DATA_PATH,
};

#undef FSM_AS_TIMEOUT_OF
#undef GO
#undef SKIP
#undef NEVER
#undef FSM_ROW_IS_TOTAL
#undef FSM_ROW_COUNT
#undef FSM_AS_ROW
#undef FSM_AS_STATE_INFO
#undef FSM_AS_TEXT
#undef FSM_DEFINE
#endif

#undef FSM_AS_STATE
#undef FSM_AS_EVENT
#undef FSM_AS_ACTION
#undef FSM_AS_TIMEOUT
#undef FSM
#undef FSM_PURPOSE
#undef FSM_TIMEOUTS
#undef FSM_STATES
#undef FSM_EVENTS
#undef FSM_ACTIONS
#undef FSM_ROWS
#undef FSM_DATA_PATH
