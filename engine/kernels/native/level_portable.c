/* Plain C for any processor. */
#include "common.h"
#include "types.h"
#include "vector_portable.h"
#include "packed.h"

#define LEVEL level_portable
#define LEVEL_NAME "portable"
#include "ops.h"
