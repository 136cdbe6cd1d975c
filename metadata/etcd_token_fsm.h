/* Machine etcd_token: what our user and password are worth at present. */
#define FSM etcd_token
#define FSM_PURPOSE "gets one token from etcd for all that wait for it, and another when it is not taken any more"
#define FSM_TIMEOUTS(T)
#define FSM_STATES(S)                                                                 \
	S(NONE, WORK, NONE, "an operation or the stream of changes that needs a token")   \
	S(ASKING, PARENT, NONE, "the answer to the user's name and password; http_call has a deadline") \
	S(HELD, WORK, NONE, "a member to say that it does not take it any more")          \
	S(CLOSED, FINAL, NONE, "nothing: the back-end is destroyed")
#define FSM_EVENTS(E) E(NEEDED) E(GRANTED) E(FAILED) E(EXPIRED) E(CLOSE)
#define FSM_ACTIONS(A) A(ask) A(keep) A(fail) A(drop) A(close)
#define FSM_ROWS(R)                                                                                              \
	/*        TIMEOUT NEEDED           GRANTED         FAILED          EXPIRED         CLOSE */       \
	R(NONE,   NEVER,  GO(ASKING, ask), NEVER,          NEVER,          NEVER,          GO(CLOSED, close)) \
	R(ASKING, NEVER,  SKIP,            GO(HELD, keep), GO(NONE, fail), NEVER,          GO(CLOSED, close)) \
	R(HELD,   NEVER,  SKIP,            NEVER,          NEVER,          GO(NONE, drop), GO(CLOSED, close)) \
	R(CLOSED, NEVER,  NEVER,           NEVER,          NEVER,          NEVER,          NEVER)
#include "fsm/declare.h"
