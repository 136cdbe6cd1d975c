/* Regular expressions over keys in time linear to the key's length, whatever the pattern: a bit-parallel automaton of at most 256
 * positions, without backtracking, of fixed size, without heap. Its own because no C library at hand promises both: PCRE2, POSIX
 * regcomp and TRE backtrack for some patterns or let nested repeats take memory without bound. Pure. Any thread.
 *
 * The syntax is that of ECMAScript as far as it is regular: literals, . [a-z] [^a-z] \d \w \s \D \W \S
 * \n \r \t \f \v \0 \xHH, ( ), (?: ), |, * + ? {n} {n,} {n,m} each also with ? behind it, ^ and $. A key is bytes and matches when
 * some part of it does, as in regex_search. Refused with their reason: back-references, look-around, \b, repeats over 255, more
 * than 256 positions when repeats are written out. */
#ifndef NEAP_STORE_MATCH_H
#define NEAP_STORE_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_MATCH_POSITIONS 256u
#define NEAP_MATCH_WORDS (NEAP_MATCH_POSITIONS / 64u)
#define NEAP_MATCH_LENGTH_MAX 1024u /* of a pattern */
#define NEAP_MATCH_DEPTH_MAX 32u
#define NEAP_MATCH_REPEAT_MAX 255u

struct neap_match_set {
	uint64_t words[NEAP_MATCH_WORDS];
};

struct neap_match {
	struct neap_match_set takes[256];                     /* by byte: positions that take it */
	struct neap_match_set begins, ends;                   /* positions that stand for ^ and $ */
	struct neap_match_set follow[NEAP_MATCH_POSITIONS];   /* positions that may come next */
	struct neap_match_set first, last;
	uint32_t positions, begin_count, end_count;
	bool empty; /* matches the empty text, so everything */
};

/* 0, or NEAP_EINVAL or NEAP_ELIMIT with `why`: "position 7: nothing to repeat". */
int neap_match_compile(struct neap_match *match, const char *pattern, size_t length, char *why, size_t why_size);

/* `*steps_p` is raised by what it cost: positions passed through, at least one a byte. */
bool neap_match_run(const struct neap_match *match, const char *text, size_t length, uint64_t *steps_p);

#endif
