/* Stands in for libFuzzer: gives each file named on the command line to the target, once. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file || fseek(file, 0, SEEK_END) != 0) {
		perror(path);
		return 1;
	}
	long size = ftell(file);
	rewind(file);
	/* exactly the size, so that a read past the end is seen by the address sanitizer */
	uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
	int failed = size < 0 || !data || fread(data, 1, (size_t)size, file) != (size_t)size;
	fclose(file);
	if (failed)
		fprintf(stderr, "%s: cannot read\n", path);
	else
		LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0;
	for (int i = 1; i < argc; i++)
		failed |= replay(argv[i]);
	return failed;
}
