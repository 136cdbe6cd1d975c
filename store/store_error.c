#include <neap/store_error.h>
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

const char *neap_store_error_name(int error)
{
	size_t i = find(error);
	return i < ERROR_COUNT ? errors[i].name : "UNKNOWN_ERROR";
}

const char *neap_store_error_text(int error)
{
	size_t i = find(error);
	return i < ERROR_COUNT ? errors[i].text : "an error number the store does not know";
}
