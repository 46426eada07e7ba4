# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The native kernels: checks of array types, and calls without the GIL on the backend's own threads.

Every function works on C-contiguous arrays whose shapes its caller (native_kernels.py) has made sure of;
what is checked here is the type and layout that a wrong call would turn into a crash.
"""

cimport numpy as cnp
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cnp.import_array()

cdef extern from "native/pool.h" nogil:
    ctypedef struct pool:
        pass
    pool *pool_new(int threads)
    void pool_free(pool *p)
    void pool_run(pool *p, void (*task)(void *, long) noexcept nogil, void *context, long count)

cdef extern from "native/kernels.h" nogil:
    ctypedef struct packed_type:
        int group, bits, registers, pieces, file_bytes, order
    enum:
        TILE_TOKENS, MOST_HEADS, MAX_DIM
    cdef enum packed_id:
        Q1_0, Q2_0, PQ2_0, PTQ1_0, Q4_0, Q4_1, Q8_0
    const packed_type packed_types[7]
    ctypedef struct packed_matrix:
        packed_id id
        int64_t rows, inputs
        uint8_t *panels
        uint8_t *tail
    cdef enum dense_id:
        DENSE_F32, DENSE_F16, DENSE_BF16
    ctypedef struct dense_matrix:
        dense_id id
        int64_t rows, inputs
        const void *weights
    ctypedef struct activations:
        int64_t tokens, inputs, blocks
        int tile, parts
        int8_t *units
        float *scales
        int32_t *sums
    ctypedef struct head_view:
        const float *data
        int64_t tokens, heads, dim, token_stride, head_stride
    ctypedef struct rope_rows:
        const float *cosines
        const float *sines
        int64_t pairs
        int adjacent
    ctypedef struct attention_job:
        head_view query
        const uint16_t *keys
        const uint16_t *values
        int64_t positions, kv_heads, value_dim
        float scale
        float *out
    ctypedef struct delta_job:
        const float *inputs
        const float *gate
        const float *alpha
        const float *beta
        float *recent
        float *state
        const float *convolution
        const float *a
        const float *dt
        const float *norm
        float epsilon, query_factor
        int64_t tokens, channels, taps, key_heads, value_heads, key_dim, value_dim
        float *heads
        float *out
    ctypedef struct level:
        const char *name
        void (*packed)(const packed_matrix *, const activations *, float *, int64_t, int64_t) noexcept nogil
        void (*dense)(const dense_matrix *, const float *, int64_t, float *, int64_t, int64_t) noexcept nogil
        void (*quantise)(const float *, int, int, activations *, int64_t, int64_t) noexcept nogil
        void (*rms_norm)(float *, const float *, const float *, float, int64_t, int64_t, float *) noexcept nogil
        void (*heads)(const head_view *, const float *, float, const rope_rows *, float *) noexcept nogil
        void (*heads_half)(const head_view *, const float *, float, const rope_rows *, uint16_t *) noexcept nogil
        void (*attention)(const attention_job *, int64_t, int64_t, int64_t, int64_t, float *) noexcept nogil
        void (*delta_inputs)(const delta_job *, int64_t, int64_t) noexcept nogil
        void (*delta_heads)(const delta_job *, int64_t, int64_t) noexcept nogil
        void (*silu_product)(const float *, const float *, int64_t, float *) noexcept nogil
        void (*sigmoid_product)(const head_view *, const float *, float *) noexcept nogil
        void (*hadamard)(const float *, const int64_t *, const float *, const float *, int64_t, int64_t, int64_t,
                         float *) noexcept nogil
        uint64_t (*read)(const uint8_t *, int64_t) noexcept nogil
    const level *const levels[1]
    const int level_count
    bint level_usable(const level *)
    bint level_proved(const level *)
    int tile_tokens(const level *, int64_t tokens)
    int64_t attention_scratch(const attention_job *, int64_t tokens)
    void repack(packed_id, uint8_t *, int64_t, int64_t, int64_t, uint8_t *)
    void select_row(const packed_matrix *, int64_t, float *)
    int64_t panel_bytes(packed_id, int64_t)
    void highest(const float *, int64_t, int64_t, int64_t *)


def level_names():
    """Names of the levels that this processor can run, the best last."""
    return tuple(levels[i].name.decode() for i in range(level_count) if level_usable(levels[i]) and level_proved(levels[i]))


def highest_ids(cnp.ndarray logits, int64_t count):
    """Ids of the `count` highest of float32 logits without NaN, highest first, equal ones by id."""
    cdef const float *x = floats(logits, "logits")
    cdef int64_t size = cnp.PyArray_SIZE(logits)
    cdef cnp.npy_intp shape = count
    if not 0 < count <= size:
        raise ValueError("as many ids as there are logits, at most")
    cdef cnp.ndarray ids = cnp.PyArray_EMPTY(1, &shape, cnp.NPY_INT64, 0)
    cdef int64_t *out = <int64_t *>cnp.PyArray_DATA(ids)
    with nogil:
        highest(x, size, count, out)
    return ids


def failed_names():
    """Names of levels that this processor says it can run, and that gave wrong results in a trial."""
    return tuple(
        levels[i].name.decode() for i in range(level_count) if level_usable(levels[i]) and not level_proved(levels[i])
    )


def built_names():
    """Names of all levels in this build, usable here or not."""
    return tuple(levels[i].name.decode() for i in range(level_count))


cdef int require(cnp.ndarray array, int type_number, str name) except -1:
    if cnp.PyArray_TYPE(array) != type_number or not cnp.PyArray_IS_C_CONTIGUOUS(array):
        raise TypeError(f"{name}: a C-contiguous array of another type was expected")
    return 0


cdef float *floats(cnp.ndarray array, str name) except NULL:
    require(array, cnp.NPY_FLOAT32, name)
    return <float *>cnp.PyArray_DATA(array)


# Large results live for one layer. Given back to the system they would cost a page fault every 4 KiB, a tenth
# of the time of a prefill block, so a few of them are kept for the next layer.
cdef enum:
    KEPT_BLOCKS = 16
    LARGE_BYTES = 1 << 18
    KEPT_BYTES = 96 << 20

cdef void *kept_memory[KEPT_BLOCKS]
cdef size_t kept_sizes[KEPT_BLOCKS]
cdef int kept_count = 0
cdef size_t kept_bytes = 0


cdef class Block:
    """Memory of a large array; it outlives the array for the next one of the same size."""

    cdef void *memory
    cdef size_t nbytes

    def __dealloc__(self):
        global kept_count, kept_bytes
        if self.memory != NULL and kept_count < KEPT_BLOCKS and kept_bytes + self.nbytes <= KEPT_BYTES:
            kept_memory[kept_count], kept_sizes[kept_count] = self.memory, self.nbytes
            kept_count += 1
            kept_bytes += self.nbytes
        else:
            free(self.memory)


cdef Block take_block(size_t nbytes):
    global kept_count, kept_bytes
    cdef Block block = Block()
    cdef int i
    block.nbytes = nbytes
    for i in range(kept_count - 1, -1, -1):
        if kept_sizes[i] == nbytes:
            block.memory = kept_memory[i]
            kept_count -= 1
            kept_bytes -= nbytes
            kept_memory[i], kept_sizes[i] = kept_memory[kept_count], kept_sizes[kept_count]
            return block
    while kept_count and kept_bytes + nbytes > KEPT_BYTES:  # other sizes are asked for now
        kept_count -= 1
        kept_bytes -= kept_sizes[kept_count]
        free(kept_memory[kept_count])
    block.memory = malloc(nbytes)
    if block.memory == NULL:
        raise MemoryError("no memory for activations")
    return block


cdef cnp.ndarray new_array(int dimensions, cnp.npy_intp *shape, int type_number, size_t size):
    """An array with elements of `size` bytes, not initialised."""
    cdef size_t nbytes = size
    cdef int i
    cdef Block block
    cdef cnp.ndarray array
    for i in range(dimensions):
        nbytes *= <size_t>shape[i]
    if nbytes < LARGE_BYTES:
        return cnp.PyArray_SimpleNew(dimensions, shape, type_number)
    block = take_block(nbytes)
    array = cnp.PyArray_SimpleNewFromData(dimensions, shape, type_number, block.memory)
    cnp.set_array_base(array, block)
    return array


cdef cnp.ndarray new_floats(int64_t rows, int64_t columns):
    cdef cnp.npy_intp shape[2]
    shape[0], shape[1] = rows, columns
    return new_array(2, shape, cnp.NPY_FLOAT32, 4)


cdef cnp.ndarray new_like(cnp.ndarray array):
    """A contiguous float32 array of the same shape."""
    return new_array(cnp.PyArray_NDIM(array), cnp.PyArray_DIMS(array), cnp.NPY_FLOAT32, 4)


cdef head_view view_heads(cnp.ndarray array, str name) except *:
    """A view [tokens, heads, dim] whose last axis is contiguous."""
    cdef head_view view
    if (cnp.PyArray_TYPE(array) != cnp.NPY_FLOAT32 or cnp.PyArray_NDIM(array) != 3
            or (cnp.PyArray_DIM(array, 2) > 1 and cnp.PyArray_STRIDE(array, 2) != 4)
            or cnp.PyArray_STRIDE(array, 0) % 4 or cnp.PyArray_STRIDE(array, 1) % 4):
        raise TypeError(f"{name}: a float32 view [tokens, heads, dim] was expected")
    view.data = <float *>cnp.PyArray_DATA(array)
    view.tokens = cnp.PyArray_DIM(array, 0)
    view.heads = cnp.PyArray_DIM(array, 1)
    view.dim = cnp.PyArray_DIM(array, 2)
    view.token_stride = cnp.PyArray_STRIDE(array, 0) // 4
    view.head_stride = cnp.PyArray_STRIDE(array, 1) // 4
    return view


cdef class Packed:
    """A packed matrix in panel layout, over memory that it keeps alive."""

    cdef packed_matrix matrix
    cdef object raw
    cdef uint8_t *tail_memory
    cdef readonly int64_t rows, inputs
    cdef readonly int group, order

    def __cinit__(self, int type_index, cnp.ndarray raw, int64_t inputs):
        require(raw, cnp.NPY_UINT8, "raw")
        self.raw = raw
        self.rows = self.matrix.rows = cnp.PyArray_DIM(raw, 0)
        self.inputs = self.matrix.inputs = inputs
        self.matrix.id = <packed_id>type_index
        self.matrix.panels = <uint8_t *>cnp.PyArray_DATA(raw)
        self.group = packed_types[type_index].group
        self.order = packed_types[type_index].order

    def __dealloc__(self):
        free(self.tail_memory)

    def select(self, list rows):
        """The dequantised rows, float32 [len(rows), inputs]."""
        cdef cnp.ndarray out = new_floats(len(rows), self.inputs)
        cdef float *data = <float *>cnp.PyArray_DATA(out)
        cdef int64_t i
        for i in range(len(rows)):
            if not 0 <= rows[i] < self.rows:
                raise IndexError(rows[i])
            select_row(&self.matrix, rows[i], data + i * self.inputs)
        return out


cdef class Dense:
    """A matrix of float weights [rows, inputs] in the file's layout."""

    cdef dense_matrix matrix
    cdef readonly object raw
    cdef readonly int64_t rows, inputs

    def __cinit__(self, int type_index, cnp.ndarray raw, int64_t inputs, *_):
        require(raw, cnp.NPY_UINT8, "raw")
        self.raw = raw
        self.rows = self.matrix.rows = cnp.PyArray_DIM(raw, 0)
        self.inputs = self.matrix.inputs = inputs
        self.matrix.id = <dense_id>type_index
        self.matrix.weights = cnp.PyArray_DATA(raw)


cdef class Integers:
    """Activations [tokens, inputs] as integers, in the order that one packed type reads them."""

    cdef activations x
    cdef object memory


cdef struct product:
    const packed_matrix *matrix
    int64_t panels
    float *out

cdef struct packed_work:
    const level *at
    const activations *x
    product *products
    int count
    int64_t step

cdef struct dense_product:
    const dense_matrix *matrix
    float *out

cdef struct dense_work:
    const level *at
    dense_product *products
    int count
    const float *x
    int64_t tokens, step

cdef struct attention_work:
    const level *at
    attention_job job
    int64_t heads, step, chunks, scratch_size

cdef struct delta_work:
    void (*part)(const delta_job *, int64_t, int64_t) noexcept nogil
    delta_job job
    int64_t heads, step

cdef struct repack_work:
    packed_matrix *matrix
    int64_t step, panels, scratch_size

cdef struct read_work:
    const level *at
    const uint8_t *data
    int64_t nbytes, step

# What is done to each token alone: one task is a run of tokens.
cdef enum token_operation:
    QUANTISE, RMS_NORM, HEADS, HEADS_HALF, SILU_PRODUCT, HADAMARD

cdef struct token_work:
    const level *at
    token_operation operation
    int64_t tokens, step, width, size
    float *x
    const float *y
    const float *z
    float *out
    uint16_t *half_out
    float epsilon
    head_view view
    rope_rows rope
    const int64_t *indices
    activations *integers
    int group, order

cdef void token_task(void *context, long index) noexcept nogil:
    cdef token_work *w = <token_work *>context
    cdef int64_t first = index * w.step, last = first + w.step, at
    cdef head_view view = w.view
    cdef rope_rows rope = w.rope
    if last > w.tokens:
        last = w.tokens
    at = first * w.width
    if w.operation == QUANTISE:
        w.at.quantise(w.x, w.group, w.order, w.integers, first, last)
    elif w.operation == RMS_NORM:
        w.at.rms_norm(w.x + at, NULL if w.y == NULL else w.y + at, w.z, w.epsilon, last - first, w.width, w.out + at)
    elif w.operation == SILU_PRODUCT:
        w.at.silu_product(w.x + at, w.y + at, (last - first) * w.width, w.out + at)
    elif w.operation == HADAMARD:
        w.at.hadamard(w.x + at, w.indices, w.y, w.z, last - first, w.width, w.size, w.out + at)
    else:
        view.data += first * view.token_stride
        view.tokens = last - first
        rope.cosines += first * rope.pairs
        rope.sines += first * rope.pairs
        if w.operation == HEADS:
            w.at.heads(&view, w.y, w.epsilon, &rope, w.out + at)
        else:
            w.at.heads_half(&view, w.y, w.epsilon, &rope, w.half_out + at)

cdef void packed_task(void *context, long index) noexcept nogil:
    cdef packed_work *w = <packed_work *>context
    cdef int64_t first = index * w.step, last = first + w.step, here, end
    cdef int i
    for i in range(w.count):
        here = first if first > 0 else 0
        end = last if last < w.products[i].panels else w.products[i].panels
        if here < end:
            w.at.packed(w.products[i].matrix, w.x, w.products[i].out, here, end)
        first -= w.products[i].panels
        last -= w.products[i].panels
        if last <= 0:
            break

cdef void dense_task(void *context, long index) noexcept nogil:
    cdef dense_work *w = <dense_work *>context
    cdef int64_t first = index * w.step, last = first + w.step, here, end
    cdef int i
    for i in range(w.count):
        here = first if first > 0 else 0
        end = last if last < w.products[i].matrix.rows else w.products[i].matrix.rows
        if here < end:
            w.at.dense(w.products[i].matrix, w.x, w.tokens, w.products[i].out, here, end)
        first -= w.products[i].matrix.rows
        last -= w.products[i].matrix.rows

cdef void attention_task(void *context, long index) noexcept nogil:
    cdef attention_work *w = <attention_work *>context
    cdef int64_t head = index // w.chunks * w.heads, first = (index % w.chunks) * w.step, last = first + w.step
    cdef int64_t heads = w.heads if w.heads < w.job.kv_heads - head else w.job.kv_heads - head
    cdef void *memory = malloc(<size_t>(heads * w.scratch_size) * sizeof(float) + 64)
    cdef float *scratch = <float *>((<uintptr_t>memory + 63) & ~<uintptr_t>63)  # whole cache lines
    if memory == NULL:
        w.scratch_size = -1
        return
    w.at.attention(&w.job, head, heads, first, last if last < w.job.query.tokens else w.job.query.tokens, scratch)
    free(memory)

cdef void delta_task(void *context, long index) noexcept nogil:
    cdef delta_work *w = <delta_work *>context
    cdef int64_t first = index * w.step, last = first + w.step
    w.part(&w.job, first, last if last < w.heads else w.heads)

cdef void repack_task(void *context, long index) noexcept nogil:
    cdef repack_work *w = <repack_work *>context
    cdef int64_t first = index * w.step, last = first + w.step
    cdef uint8_t *rows = <uint8_t *>malloc(<size_t>panel_bytes(w.matrix.id, w.matrix.inputs))
    if rows == NULL:
        w.scratch_size = -1
        return
    repack(w.matrix.id, w.matrix.panels, w.matrix.inputs, first, last if last < w.panels else w.panels, rows)
    free(rows)

cdef void read_task(void *context, long index) noexcept nogil:
    cdef read_work *w = <read_work *>context
    cdef int64_t first = index * w.step, last = first + w.step
    w.at.read(w.data + first, (last if last < w.nbytes else w.nbytes) - first)


cdef class Backend:
    """One level and its threads. A call that finds them at work for another one does its work alone."""

    cdef const level *at
    cdef pool *threads_pool
    cdef readonly int threads
    cdef readonly str name

    def __cinit__(self, str name, int threads):
        cdef int i
        for i in range(level_count):
            if levels[i].name.decode() == name and level_usable(levels[i]) and level_proved(levels[i]):
                self.at = levels[i]
        if self.at == NULL:
            raise ValueError(f"this processor has no kernel level {name}")
        self.name = name
        self.threads = threads
        self.threads_pool = pool_new(threads)
        if self.threads_pool == NULL:
            raise MemoryError("the kernel threads could not be started")

    def __dealloc__(self):
        pool_free(self.threads_pool)

    cdef void each_token(self, token_work *work, token_operation operation, int64_t tokens, int64_t width):
        """Run an operation over all tokens, in runs of whole tiles on the threads where it is worth it."""
        cdef int64_t runs = 1
        work.at, work.operation, work.tokens, work.width = self.at, operation, tokens, width
        if tokens * width >= 16384:
            runs = 4 * self.threads
        if tokens == 0:
            return
        work.step = ((tokens + runs - 1) // runs + TILE_TOKENS - 1) // TILE_TOKENS * TILE_TOKENS
        with nogil:
            pool_run(self.threads_pool, token_task, work, (tokens + work.step - 1) // work.step)

    def pack(self, int type_index, cnp.ndarray raw, int64_t inputs):
        """Bring raw rows, uint8 [rows, row bytes], to panel layout in place."""
        cdef Packed result = Packed(type_index, raw, inputs)
        cdef packed_matrix *m = &result.matrix
        cdef int64_t nbytes = panel_bytes(m.id, inputs), rest = m.rows % 16
        cdef repack_work work
        cdef uint8_t *scratch
        work.matrix, work.panels, work.step, work.scratch_size = m, m.rows // 16, 8, 0
        with nogil:
            pool_run(self.threads_pool, repack_task, &work, (work.panels + 7) // 8)
        if work.scratch_size < 0:
            raise MemoryError("no memory for the panel layout")
        if rest:
            result.tail_memory = <uint8_t *>malloc(<size_t>nbytes + 64)
            scratch = <uint8_t *>malloc(<size_t>nbytes)
            if result.tail_memory == NULL or scratch == NULL:
                free(scratch)
                raise MemoryError("no memory for the panel layout")
            m.tail = <uint8_t *>((<uintptr_t>result.tail_memory + 63) & ~<uintptr_t>63)
            memset(m.tail, 0, <size_t>nbytes)
            memcpy(m.tail, m.panels + (m.rows // 16) * nbytes, <size_t>(rest * (nbytes // 16)))
            repack(m.id, m.tail, inputs, 0, 1, scratch)
            free(scratch)
        return result

    cdef Integers quantise(self, cnp.ndarray x, int group, int order, int bits):
        """Integer activations of x, float32 [tokens, inputs]."""
        cdef Integers result = Integers()
        cdef activations *a = &result.x
        cdef float *data = floats(x, "x")
        cdef cnp.npy_intp size
        a.tokens, a.inputs = cnp.PyArray_DIM(x, 0), cnp.PyArray_DIM(x, 1)
        a.blocks = a.inputs // group
        a.parts = 2 if bits == 16 else 1
        a.tile = tile_tokens(self.at, a.tokens)
        # One allocation: scales, sums, units (the last tile is whole; of its missing tokens nothing is kept). Units
        # start a cache line, so that no row of a tile register lies in two.
        size = 8 * a.tokens * a.blocks + (a.tokens + a.tile - 1) // a.tile * a.tile * a.inputs * a.parts + 64
        result.memory = new_array(1, &size, cnp.NPY_UINT8, 1)
        a.scales = <float *>cnp.PyArray_DATA(<cnp.ndarray>result.memory)
        a.sums = <int32_t *>(a.scales + a.tokens * a.blocks)
        a.units = <int8_t *>((<uintptr_t>(a.sums + a.tokens * a.blocks) + 63) & ~<uintptr_t>63)
        cdef token_work work
        work.x, work.group, work.order, work.integers = data, group, order, a
        self.each_token(&work, QUANTISE, a.tokens, a.inputs)
        return result

    cdef cnp.ndarray rotated(self, cnp.ndarray x, int64_t block, object signs, object order):
        """x, or H (signs * x[order]) where `block` is not 0."""
        return x if block == 0 else self.hadamard(x, order, signs, None, block)

    def multiply_packed(self, list matrices, cnp.ndarray x, int bits, int64_t block, object signs, object order):
        """Products [tokens, rows] of matrices of one group and order with x, rotated, then rounded to `bits`."""
        cdef int count = len(matrices), i
        cdef Packed m = matrices[0]
        cdef Integers integers = self.quantise(self.rotated(x, block, signs, order), m.group, m.order, bits)
        cdef product products[8]
        cdef packed_work work
        cdef int64_t panels = 0, runs
        cdef list out = []
        if count > 8:
            raise ValueError("at most eight matrices a call")
        for i in range(count):
            m = matrices[i]
            array = new_floats(integers.x.tokens, m.rows)
            out.append(array)
            products[i].matrix = &m.matrix
            products[i].panels = (m.rows + 15) // 16
            products[i].out = <float *>cnp.PyArray_DATA(<cnp.ndarray>array)
            panels += products[i].panels
        work.at, work.x, work.products, work.count = self.at, &integers.x, products, count
        # Where weights are read only once, long runs of them: each start of a run waits for the memory.
        runs = 1 if self.threads == 1 else self.threads * (2 if integers.x.tokens == 1 else 4)
        work.step = max(1, panels // runs)
        with nogil:
            pool_run(self.threads_pool, packed_task, &work, (panels + work.step - 1) // work.step)
        return out

    def multiply_dense(self, list matrices, cnp.ndarray x, int64_t block, object signs, object order):
        """Products [tokens, rows] of matrices of one width with x, float32 [tokens, inputs], rotated first."""
        cdef int count = len(matrices), i
        cdef Dense m
        cdef dense_product products[8]
        cdef dense_work work
        cdef int64_t chunks = self.threads * 4, rows = 0
        cdef list out = []
        x = self.rotated(x, block, signs, order)
        if count > 8:
            raise ValueError("at most eight matrices a call")
        work.at, work.x, work.products, work.count = self.at, floats(x, "x"), products, count
        work.tokens = cnp.PyArray_DIM(x, 0)
        for i in range(count):
            m = matrices[i]
            array = new_floats(work.tokens, m.rows)
            out.append(array)
            products[i].matrix = &m.matrix
            products[i].out = <float *>cnp.PyArray_DATA(<cnp.ndarray>array)
            rows += m.rows
        if rows * m.inputs * work.tokens < 32768:
            chunks = 1
        work.step = (rows + chunks - 1) // chunks
        with nogil:
            pool_run(self.threads_pool, dense_task, &work, (rows + work.step - 1) // work.step)
        return out

    def rms_norm(self, cnp.ndarray x, object add, cnp.ndarray weight, float epsilon):
        """x += add (unless None); then the normed x. All rows [..., width] with width = len(weight)."""
        cdef float *data = floats(x, "x")
        cdef float *other = NULL if add is None else floats(add, "add")
        cdef float *w = floats(weight, "weight")
        cdef int64_t width = cnp.PyArray_DIM(weight, 0), count = cnp.PyArray_SIZE(x) // width
        cdef cnp.ndarray out = new_like(x)
        cdef float *result = <float *>cnp.PyArray_DATA(out)
        cdef token_work work
        work.x, work.y, work.z, work.epsilon, work.out = data, other, w, epsilon, result
        self.each_token(&work, RMS_NORM, count, width)
        return out

    cdef token_work turning(self, cnp.ndarray x, object norm, float epsilon, cnp.ndarray cosines,
                            cnp.ndarray sines, bint adjacent) except *:
        """Norm (unless None) and rotation of heads x, but for where the result goes."""
        cdef token_work work
        work.view = view_heads(x, "x")
        work.y, work.epsilon = NULL if norm is None else floats(norm, "norm"), epsilon
        work.rope.cosines, work.rope.sines = floats(cosines, "cosines"), floats(sines, "sines")
        work.rope.pairs, work.rope.adjacent = cnp.PyArray_DIM(cosines, 1), adjacent
        if work.view.dim > MAX_DIM:
            raise ValueError("heads of more than 1024 dimensions")
        return work

    def attend(self, cnp.ndarray query, cnp.ndarray key, cnp.ndarray value, object query_norm, object key_norm,
               float epsilon, cnp.ndarray cosines, cnp.ndarray sines, bint adjacent, cnp.ndarray keys,
               cnp.ndarray values, int64_t position, float scale):
        """See NumpyKernels.attend; keys and values are whole memories, written from `position` on."""
        cdef token_work turn_key = self.turning(key, key_norm, epsilon, cosines, sines, adjacent)
        cdef token_work turn_query = self.turning(query, query_norm, epsilon, cosines, sines, adjacent)
        cdef head_view new_values = view_heads(value, "value")
        cdef attention_work work
        cdef attention_job *job = &work.job
        cdef cnp.npy_intp shape[3]
        cdef cnp.ndarray turned = new_like(query), out
        cdef uint16_t *values_at
        cdef int64_t tokens = turn_query.view.tokens, task, tasks
        require(keys, cnp.NPY_FLOAT16, "keys")
        require(values, cnp.NPY_FLOAT16, "values")
        job.positions, job.kv_heads = position + tokens, cnp.PyArray_DIM(keys, 1)
        job.value_dim, job.scale = cnp.PyArray_DIM(values, 2), scale
        if (job.positions > cnp.PyArray_DIM(keys, 0) or job.positions > cnp.PyArray_DIM(values, 0)
                or cnp.PyArray_DIM(keys, 2) != turn_key.view.dim or turn_key.view.tokens != tokens
                or new_values.tokens != tokens or new_values.dim != job.value_dim
                or turn_query.view.dim != turn_key.view.dim or cnp.PyArray_DIM(cosines, 0) < tokens):
            raise ValueError("the heads do not fit the memories")
        if turn_query.view.dim % 16 or job.value_dim % 16 or turn_query.view.heads // job.kv_heads > 64:
            raise ValueError("head dimensions must be multiples of 16")
        job.keys, job.values = <uint16_t *>cnp.PyArray_DATA(keys), <uint16_t *>cnp.PyArray_DATA(values)
        turn_key.half_out = <uint16_t *>job.keys + position * job.kv_heads * turn_key.view.dim
        values_at = <uint16_t *>job.values + position * job.kv_heads * job.value_dim
        turn_query.out = <float *>cnp.PyArray_DATA(turned)
        self.each_token(&turn_key, HEADS_HALF, tokens, turn_key.view.heads * turn_key.view.dim)
        self.each_token(&turn_query, HEADS, tokens, turn_query.view.heads * turn_query.view.dim)
        shape[0], shape[1], shape[2] = tokens, turn_query.view.heads, job.value_dim
        out = new_array(3, shape, cnp.NPY_FLOAT32, 4)
        work.at, job.query, job.out = self.at, view_heads(turned, "query"), <float *>cnp.PyArray_DATA(out)
        work.step = max(1, min(128, tokens))
        work.chunks = (tokens + work.step - 1) // work.step
        # Of one token, each thread reads its share of every row; of many, a head's scores fill a cache.
        work.heads = 1 if tokens > 1 else min(<int64_t>MOST_HEADS, (job.kv_heads + self.threads - 1) // self.threads)
        work.scratch_size = attention_scratch(job, work.step)
        tasks = (job.kv_heads + work.heads - 1) // work.heads * work.chunks
        with nogil:
            self.at.heads_half(&new_values, NULL, 0, NULL, values_at)
            if tokens * job.positions * job.query.heads * job.query.dim < 131072:  # threads cost more than they give
                for task in range(tasks):
                    attention_task(&work, task)
            else:
                pool_run(self.threads_pool, attention_task, &work, tasks)
        if work.scratch_size < 0:
            raise MemoryError("no memory for attention scores")
        return out

    def delta_net(self, cnp.ndarray inputs, cnp.ndarray gate, cnp.ndarray alpha, cnp.ndarray beta, cnp.ndarray recent,
                  cnp.ndarray state, cnp.ndarray convolution, cnp.ndarray a, cnp.ndarray dt, cnp.ndarray norm,
                  float epsilon):
        """See NumpyKernels.delta_net."""
        cdef delta_work work
        cdef delta_job *job = &work.job
        cdef double dim
        cdef cnp.ndarray heads = new_like(inputs), out = new_like(gate)
        job.inputs, job.gate = floats(inputs, "inputs"), floats(gate, "gate")
        job.alpha, job.beta = floats(alpha, "alpha"), floats(beta, "beta")
        job.recent, job.state = floats(recent, "recent"), floats(state, "state")
        job.convolution, job.norm = floats(convolution, "convolution"), floats(norm, "norm")
        job.a, job.dt, job.epsilon = floats(a, "a"), floats(dt, "dt"), epsilon
        job.heads, job.out = <float *>cnp.PyArray_DATA(heads), <float *>cnp.PyArray_DATA(out)
        job.tokens, job.channels = cnp.PyArray_DIM(inputs, 0), cnp.PyArray_DIM(inputs, 1)
        job.taps = cnp.PyArray_DIM(convolution, 0)
        job.value_heads, job.key_dim, job.value_dim = (
            cnp.PyArray_DIM(state, 0), cnp.PyArray_DIM(state, 1), cnp.PyArray_DIM(state, 2))
        if job.key_dim % 16 or job.value_dim % 16 or job.key_dim > MAX_DIM:
            raise ValueError("head dimensions must be multiples of 16 up to 1024")
        job.key_heads = (job.channels - job.value_heads * job.value_dim) // (2 * job.key_dim)
        dim = job.key_dim
        job.query_factor = <float>(dim ** -0.5)
        with nogil:
            work.part = self.at.delta_inputs
            self.each_head(&work, 2 * job.key_heads + job.value_heads)
            work.part = self.at.delta_heads
            self.each_head(&work, job.value_heads)
        return out

    cdef void each_head(self, delta_work *work, int64_t heads) noexcept nogil:
        """All heads, in runs that stay on one thread: the next head's memory is asked for in time."""
        work.heads = heads
        work.step = (heads + 4 * self.threads - 1) // (4 * self.threads)
        pool_run(self.threads_pool, delta_task, work, (heads + work.step - 1) // work.step)

    def unfold(self, cnp.ndarray z, int64_t block, cnp.ndarray signs):
        """signs * (H z), for z [tokens, width]."""
        return self.hadamard(z, None, None, signs, block)

    def silu_product(self, cnp.ndarray gate, cnp.ndarray up):
        """silu(gate) ⊙ up."""
        cdef cnp.ndarray out = new_like(gate)
        cdef float *g = floats(gate, "gate")
        cdef float *u = floats(up, "up")
        cdef float *result = <float *>cnp.PyArray_DATA(out)
        cdef int64_t width = cnp.PyArray_DIM(gate, cnp.PyArray_NDIM(gate) - 1)
        cdef token_work work
        work.x, work.y, work.out = g, u, result
        self.each_token(&work, SILU_PRODUCT, cnp.PyArray_SIZE(gate) // width, width)
        return out

    def sigmoid_product(self, cnp.ndarray gate, cnp.ndarray values):
        """sigmoid(gate) ⊙ values, [tokens, heads, dim]."""
        cdef head_view view = view_heads(gate, "gate")
        cdef cnp.ndarray out = new_like(gate)
        cdef float *v = floats(values, "values")
        cdef float *result = <float *>cnp.PyArray_DATA(out)
        with nogil:
            self.at.sigmoid_product(&view, v, result)
        return out

    cdef cnp.ndarray hadamard(self, cnp.ndarray x, object order, object before, object after, int64_t block):
        """x [tokens, width] in `order`, times `before`, transformed, times `after`, where given."""
        cdef int64_t tokens = cnp.PyArray_DIM(x, 0), width = cnp.PyArray_DIM(x, 1)
        cdef float *data = floats(x, "x")
        cdef float *first = NULL if before is None else floats(before, "before")
        cdef float *last = NULL if after is None else floats(after, "after")
        cdef int64_t *indices = NULL
        if order is not None:
            require(order, cnp.NPY_INT64, "order")
            indices = <int64_t *>cnp.PyArray_DATA(<cnp.ndarray>order)
        cdef cnp.ndarray out = new_floats(tokens, width)
        cdef float *result = <float *>cnp.PyArray_DATA(out)
        cdef token_work work
        work.x, work.indices, work.y, work.z, work.size, work.out = data, indices, first, last, block, result
        self.each_token(&work, HADAMARD, tokens, width)
        return out

    def read(self, cnp.ndarray data):
        """Read all of a uint8 array once on all threads (to measure the memory's speed)."""
        cdef read_work work
        require(data, cnp.NPY_UINT8, "data")
        work.at, work.data, work.nbytes = self.at, <uint8_t *>cnp.PyArray_DATA(data), cnp.PyArray_SIZE(data)
        work.step = 1 << 20
        with nogil:
            pool_run(self.threads_pool, read_task, &work, (work.nbytes + work.step - 1) // work.step)
