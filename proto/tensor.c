/* Element types and pad modes: their names, sizes and classes. */
#include "tensor.h"

const char *const dtype_names[DTYPE_COUNT] = {
#define DTYPE(NAME, name, size, class) [DTYPE_##NAME] = name,
#include "dtype.def"
};

const char *const pad_mode_names[PAD_MODE_COUNT] = {
	[PAD_MODE_CONSTANT] = "constant",   [PAD_MODE_EDGE] = "edge", [PAD_MODE_REFLECT] = "reflect",
	[PAD_MODE_SYMMETRIC] = "symmetric", [PAD_MODE_WRAP] = "wrap",
};

uint32_t dtype_size(enum dtype dtype)
{
	static const uint8_t sizes[DTYPE_COUNT] = {
#define DTYPE(NAME, name, size, class) [DTYPE_##NAME] = size,
#include "dtype.def"
	};

	return sizes[dtype];
}

enum dtype_class dtype_class(enum dtype dtype)
{
	static const uint8_t classes[DTYPE_COUNT] = {
#define DTYPE(NAME, name, size, class) [DTYPE_##NAME] = DTYPE_CLASS_##class,
#include "dtype.def"
	};

	return (enum dtype_class)classes[dtype];
}
