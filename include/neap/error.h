/* Error numbers and names.
 *
 * Every function of Neap that can fail returns 0 (or a count) or one of these negative numbers. Numbers from -1 to -303 are
 * those of the Mooncake Transfer Engine (its error.h), so that a user of both sees one set; Neap's own start at -2001, clear of
 * the numbers the store uses. */
#ifndef NEAP_ERROR_H
#define NEAP_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NEAP_API __attribute__((visibility("default")))
#define NEAP_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define NEAP_API
#define NEAP_PRINTF(text, first)
#endif

/* name, number, what it means to the person who reads it */
#define NEAP_ERRORS(E)                                                                      \
	E(OK, 0, "success")                                                                     \
	E(EINVAL, -1, "an argument is outside its allowed range")                               \
	E(ETOOMANY, -2, "more requests than the configured limit")                              \
	E(ENOTREG, -3, "the range is not inside one registered region")                         \
	E(EBUSY, -4, "the object is still in use")                                              \
	E(ENODEV, -6, "no such device")                                                         \
	E(EOVERLAP, -7, "the range overlaps another registered region")                         \
	E(ENOTSUP, -8, "not supported by this build or peer")                                   \
	E(EDNS, -101, "the host name does not resolve")                                         \
	E(ESOCKET, -102, "a socket operation failed")                                           \
	E(EJSON, -103, "a document is not valid")                                               \
	E(EREJECTED, -104, "the peer refused the handshake")                                    \
	E(EMETADATA, -200, "the metadata service failed")                                       \
	E(EENDPOINT, -201, "the endpoint failed")                                               \
	E(ECONTEXT, -202, "the device context failed")                                          \
	E(ENUMA, -300, "a NUMA call failed")                                                    \
	E(ECLOCK, -301, "the clock failed")                                                     \
	E(ENOMEM, -302, "out of memory")                                                        \
	E(ENOSYS, -303, "not implemented")                                                      \
	E(EAGAIN, -2001, "a bounded queue is full; try again after some work has completed")    \
	E(ETIMEDOUT, -2002, "a deadline passed")                                                \
	E(ECANCELED, -2003, "canceled")                                                         \
	E(EREENTERED, -2004, "called from inside a callback where that is not allowed")         \
	E(ETHREAD, -2005, "called from a thread that does not own the reactor")                 \
	E(EFORKED, -2006, "called in a forked child; the reactor belongs to the parent")        \
	E(ESTALE, -2007, "the handle's object is gone")                                         \
	E(ECLOSED, -2008, "the object is closing or closed")                                    \
	E(ELIMIT, -2009, "a configured limit is reached")                                       \
	E(EPROTO, -2010, "the peer broke the protocol")                                         \
	E(EPEER, -2011, "the peer closed or reset the connection")                              \
	E(EINSTANCE, -2012, "another process instance answers at the peer's address")           \
	E(EGRANT, -2013, "the grant is missing, ended, or does not cover the range")            \
	E(ECORRUPT, -2014, "a checksum does not match")                                         \
	E(EADDRESS, -2015, "a host or port is malformed")                                       \
	E(ENOSESSION, -2016, "the server does not know this client's session: what it remembered of it is lost")  \
	E(ENOMETHOD, -2017, "the server has no such method")                                     \
	E(EREQUEST, -2018, "the request cannot be read, or its id cannot be")                    \
	E(EFINISHED, -2019, "the client has said that this request is finished; its answer is not kept any more") \
	E(ETAKEN, -2020, "the name or key belongs to somebody else")                            \
	E(EINTERNAL, -2099, "a machine met an event that cannot happen; it was closed")

enum neap_error {
#define NEAP_ERROR_ENUM(name, number, text) NEAP_##name = (number),
	NEAP_ERRORS(NEAP_ERROR_ENUM)
#undef NEAP_ERROR_ENUM
};

/* "NEAP_ETIMEDOUT"; "NEAP_UNKNOWN" for a number that is not in the list. Any thread. */
NEAP_API const char *neap_error_name(int error);

/* The sentence beside the number. Any thread. */
NEAP_API const char *neap_error_text(int error);

#ifdef __cplusplus
}
#endif
#endif
