/* Which of our devices talks to which of the peer's (te spec 5.5, 6), as a pure function of what is known.
 *
 * Each end has its devices for the memory in question, nearest first: a `neap_path_side`. They are made when memory is registered and
 * when a descriptor was read, and kept. A choice looks at pairs of both. The peer's devices are found by their names: where a name
 * stands in a matrix says nothing about its index (te spec 2.4).
 *
 * No allocation, no clock, no chance of its own. Any thread, as far as nobody changes what a side was made from. */
#ifndef NEAP_TRANSPORTS_TOPOLOGY_PATHS_H
#define NEAP_TRANSPORTS_TOPOLOGY_PATHS_H

#include "transports/topology/topology.h"

/* --- where memory lies ------------------------------------------------------------------------------------------------------------ */

/* The location of the byte at `offset` of a buffer of `length` bytes that is called `name`: "segments:4096:0,1" is memory whose equal
 * parts lie on those NUMA nodes, and becomes "cpu:0" or "cpu:1"; all else stays. What cannot be read, or does not fit, is "*". */
void neap_location_at(const char *name, uint64_t offset, uint64_t length, char location[NEAP_TOPOLOGY_LOCATION_SIZE]);

/* --- the two ends ------------------------------------------------------------------------------------------------------------------ */

/* Devices of one end. `names` are those of the topology or descriptor that it was made from, and live as long. */
struct neap_path_side {
	uint32_t preferred, count;        /* the first `preferred` of `count` */
	uint8_t device[NEAP_DEVICES_MAX]; /* indices of topology->devices, or of descriptor->devices and of a buffer's rkeys */
	const char *names[NEAP_DEVICES_MAX];
};

/* Our end: the usable devices of the location's row. For a location without one (such as "*") that of cpu:<numa_node>, when the node of
 * the pages is known (>= 0); else that of "*"; else every usable device, preferred. Count 0: there is none. */
void neap_path_local(const struct neap_topology *topology, const char *location, int32_t numa_node, struct neap_path_side *side);

/* The peer's end, for a location of its own (neap_location_at of its buffer's name): the devices of that row of its matrix, by name;
 * names that are no device are passed over, and so is a device that no row names: Mooncake leaves what is dead in devices[] alone (its
 * rkey is 0, rdma-observed 6). For a location without a row, or one that is left without devices, every device that some row names;
 * without a usable matrix every device. */
void neap_path_remote(const struct neap_descriptor *descriptor, const char *location, struct neap_path_side *side);

/* --- the choice --------------------------------------------------------------------------------------------------------------------- */

struct neap_path {
	uint8_t local, remote; /* as in neap_path_side.device */
};

struct neap_path_question {
	const struct neap_path_side *local, *remote;
	/* Bytes under way through each device, by its index; NULL: not counted. */
	const uint64_t *local_bytes, *remote_bytes;
	uint64_t random; /* decides between equals: another one for each question */
	bool same_name;  /* rails: of equally near pairs those of one name come first (MC_ENABLE_DEST_DEVICE_AFFINITY) */
	/* Paths that this transfer has failed on, the latest last: they are avoided while there are others. */
	const struct neap_path *tried;
	uint32_t tried_count;
	/* True: not through this pair now. NULL: all may be used. */
	bool (*paused)(void *user, struct neap_path path);
	void *user;
};

/* The best pair that is not paused. First by what failed: one that was not tried before one that was; one with neither device of the
 * latest failure before one with one of them, for nobody knows which of the two was to blame. Then by distance: preferred on both ends,
 * then on the peer's end away, then on ours, then on both. Then same_name, then fewest bytes under way at both devices together, then
 * `random`, evenly. False: every pair is paused, or an end has no device.
 *
 * Costs a look at each pair of the nearest class that has an answer; at each pair after a failure. */
bool neap_path_choose(const struct neap_path_question *question, struct neap_path *path_p);

/* The same question asked again and again: the up to `max` best pairs, each once, best first. For lists and tests; it costs max
 * choices. Their number. */
uint32_t neap_path_rank(const struct neap_path_question *question, struct neap_path *paths, uint32_t max);

#endif
