/* What the accessor wants to know of the directory: questions of one turn go in one call. */
#ifndef NEAP_STORE_NODE_PLACES_H
#define NEAP_STORE_NODE_PLACES_H

#include "reactor/core.h"
#include "reactor/pool.h"
#include "store/accessor/places.h"
#include "store/directory/key_directory.h"

#define NODE_QUESTIONS_A_CALL 64u
#define NODE_CALLS_MAX 16u /* of a kind under way */
#define NODE_QUESTION_KEY 104u

enum node_question_kind { NODE_ASK_CANDIDATES, NODE_ASK_REPLICAS, NODE_ASK_KINDS };

struct node_question {
	struct node_question *next;
	neap_placed_func *answered;
	void *user;
	uint64_t question, size;
	bool exists;    /* candidates were refused because the key is there: these replicas are the answer */
	uint8_t rounds; /* that such a key was gone again */
	uint32_t key_length;
	char *outside; /* a long key */
	char inside[NODE_QUESTION_KEY];
};

struct node_questions {
	struct node_question *first, **end;
	uint32_t count, calls; /* waiting; calls under way */
};

/* The last answer about candidates, good for a few more puts: who has room does not depend on the key. Whether the key is there already is
 * looked at by the owner, and by the directory when the value is announced. */
struct node_hint {
	struct neap_route routes[NEAP_ROUTES_MAX];
	uint32_t count;
	uint64_t until_ns, bytes_left;
};

struct node_places_call;

struct node_places {
	struct neap_store *store;
	struct neap_pool questions, calls[NODE_ASK_KINDS];
	struct node_questions waiting[NODE_ASK_KINDS];
	struct neap_ready ask;
	struct node_hint hint;
	uint64_t hinted, asked[NODE_ASK_KINDS], batches[NODE_ASK_KINDS], failed;
};

int node_places_create(struct node_places *places, struct neap_store *store, uint32_t operations_max);
/* Nobody asks any more: what is under way is canceled and not answered. */
void node_places_destroy(struct node_places *places);
/* For neap_accessor_create. */
struct neap_places node_places_face(struct node_places *places);

#endif
