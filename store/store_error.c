#include <neap/error.h>
#include <neap/store_error.h>
#include <stdbool.h>
#include <stddef.h>

static const struct {
	int number;
	const char *name, *text;
} errors[] = {
#define AS_ROW(name, number, text) {number, #name, text},
	NEAP_STORE_ERRORS(AS_ROW)
#undef AS_ROW
};

#define ERROR_COUNT (sizeof errors / sizeof errors[0])

static size_t find(int error)
{
	size_t i = 0;
	while (i < ERROR_COUNT && errors[i].number != error)
		i++;
	return i;
}

/* Outcomes of a store have numbers of neap/error.h too: of deadlines, and of what the process itself refuses. */
static bool is_of_neap(int error)
{
	return error <= NEAP_EAGAIN && error >= NEAP_EINTERNAL;
}

const char *neap_store_error_name(int error)
{
	size_t i = find(error);
	return i < ERROR_COUNT ? errors[i].name : is_of_neap(error) ? neap_error_name(error) : "UNKNOWN_ERROR";
}

const char *neap_store_error_text(int error)
{
	size_t i = find(error);
	return i < ERROR_COUNT ? errors[i].text : is_of_neap(error) ? neap_error_text(error) : "an error number the store does not know";
}
