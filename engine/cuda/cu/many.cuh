// Products of integer weights with many inputs, on tensor cores, with the bits of products.cuh.
//
// Within a unit of weights a product is an exact integer whoever adds it up, so a matrix instruction may. What it leaves, one
// integer per row, input and unit, is then added in floats as everywhere: unit u meets partial sum u mod 8, in order, and the
// partial sums are joined by halving. A warp has 16 rows and 16 inputs, and so 64 partial sums a lane.
//
// A block has eight warps, `side` of them beside each other over the inputs of a group (1, 2 or 4 for at most 16, 32 or 64 of
// them) and the others over rows. Part by part it unpacks its rows' levels into shared memory, and brings its inputs there; a part
// are 8 units, or one of those of 256 values.
#pragma once
#include "kernels.cuh"

// Threads of a block, and inputs of a group at most.
#define MANY 256
#define GROUP_INPUTS 64

// Bytes of a row or an input in shared memory: those of 256 levels and some, so that eight of them at one place lie in different
// banks. A block has SIDES rows and inputs, those of the next part included if they are brought ahead.
#define STRIDE 272

// Adding this integer's bits and subtracting the number that they are makes a float of a small integer, exactly.
#define SMALL_INTEGER 0x4b400000
__device__ __forceinline__ float small_integer(i32 p) { return __int_as_float(p) - 12582912.0f; }

// Which rows and inputs a block and its warps have.
struct Sides {
    u32 side, rows, first_row, warp_row, warp_input;
    // Where the inputs of a part begin: behind the rows, or behind those of the part before.
    u32 inputs;
    bool works;

    __device__ __forceinline__ Sides(u32 count) {
        const u32 warp = threadIdx.x / WARP;
        side = count > 32 ? 4 : count > 16 ? 2 : 1;
        rows = 128 / side;
        inputs = rows;
        first_row = blockIdx.x * rows;
        warp_row = warp / side * 16;
        warp_input = warp % side * 16;
        works = warp_input < count;
    }
    // Where a lane's row of `load_matrices` is, for weights and for inputs, from the first value on.
    __device__ __forceinline__ u32 weights_at() const { return (warp_row + lane() % 16) * STRIDE + lane() / 16 * 16; }
    __device__ __forceinline__ u32 inputs_at() const {
        return (inputs + warp_input + lane() % 8 + lane() / 16 * 8) * STRIDE + lane() / 8 % 2 * 16;
    }
    // Of two places for inputs the other.
    __device__ __forceinline__ void turn() { inputs = inputs == rows ? rows + 16 * side : rows; }
    // Rows and inputs of a lane's results: rows `row()` and 8 more, inputs `input()` and 1 more, and 8 further on.
    __device__ __forceinline__ u32 row() const { return warp_row + lane() / 4; }
    __device__ __forceinline__ u32 input() const { return warp_input + lane() % 4 * 2; }
};

// Joins the partial sums by halving.
__device__ __forceinline__ float join_parts(const float (&s)[8][2][4], u32 j, u32 i) {
    return ((s[0][j][i] + s[4][j][i]) + (s[2][j][i] + s[6][j][i])) + ((s[1][j][i] + s[5][j][i]) + (s[3][j][i] + s[7][j][i]));
}

// The inputs of a group: those that `tokens` names, or as they come.
struct Group {
    u32 begin, count;
    const u32* tokens;

    __device__ __forceinline__ u32 input(u32 t) const { return tokens ? __ldg(tokens + begin + t) : begin + t; }
};

// Units of 16 or 32 values, in tiles.
template <class U> struct ManyTiles {
    static constexpr u32 PART = 8 * U::UNIT;
    // Whether there is room for the inputs of two parts.
    static constexpr bool AHEAD = !U::MINS;
    static constexpr u32 SIDES = AHEAD ? 160 : 144;
    struct Place {
        alignas(16) i8 levels[SIDES * STRIDE];
        // Of the part's units.
        alignas(16) float scales[8][SIDES];
        alignas(16) float mins[8][U::MINS ? SIDES : 4];
    };

    static __device__ __forceinline__ void bring_weights(Place& place, const u8* w, const Sides& at, u32 rows, u32 cols, u32 part) {
        typedef Tiles<U> P;
        const u32 units = cols / U::UNIT, last = (rows + 3) / 4 - 1;
#pragma unroll 1
        for (u32 tile = thread_anew() / WARP; tile < at.rows / 4; tile += MANY / WARP) {
            typename P::Unit unit;
            P::load(w + min(at.first_row / 4 + tile, last) * P::tile_bytes(cols), part, units, unit);
            i32 words[U::UNIT / 4];
            float d, d_min = 0.0f;
            U::open(unit.levels, unit.header, words, d, d_min);
            const u32 row = 4 * tile + P::row();
            i8* to = place.levels + row * STRIDE + P::part() * U::UNIT;
#pragma unroll
            for (u32 k = 0; k < U::UNIT / 16; k++) {
                *(int4*)(to + 16 * k) = int4{words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3]};
            }
            place.scales[P::part()][row] = d;
            if constexpr (U::MINS) place.mins[P::part()][row] = d_min;
        }
    }

    // Has the weights of a part come nearer.
    static __device__ __forceinline__ void fetch_weights(const u8* w, const Sides& at, u32 rows, u32 cols, u32 part) {
        typedef Tiles<U> P;
        const u32 units = cols / U::UNIT, last = (rows + 3) / 4 - 1, bytes = P::bytes(min(units - 8 * part, 8u));
#pragma unroll 1
        for (u32 tile = thread_anew() / WARP; tile < at.rows / 4; tile += MANY / WARP) {
            const u8* b = w + min(at.first_row / 4 + tile, last) * P::tile_bytes(cols) + (u64)part * P::bytes(8);
            if (32 * lane() < bytes) prefetch(b + 32 * lane());
        }
    }

    static __device__ __forceinline__ void bring_inputs(Place& place, const Integers& x, const Sides& at, const Group& group, u32 cols,
                                                        u32 part) {
        constexpr u32 PIECES = PART / 16, SCALES = PART / 32;
        const u32 from = part * PART, here = min(PART, cols - from);
#pragma unroll 1
        for (u32 i = thread_anew(); i < group.count * PIECES; i += MANY) {
            const u32 t = i / PIECES, k = i % PIECES * 16;
            if (k < here) {
                bring16(place.levels + (at.inputs + t) * STRIDE + k, x.values + ((u64)group.input(t) * cols + from + k));
            }
        }
#pragma unroll 1
        for (u32 i = thread_anew(); i < group.count * SCALES; i += MANY) {
            const u32 t = i / SCALES, k = i % SCALES;
            if (32 * k < here) {
                const u64 number = ((u64)group.input(t) * cols + from) / 32 + k;
                bring4(&place.scales[k][at.inputs + t], x.scales + number);
                if constexpr (U::MINS) {
                    const short2 two = __ldg((const short2*)x.sums + number);
                    place.mins[k][at.inputs + t] = -(float)(two.x + two.y);
                }
            }
        }
    }

    static __device__ __forceinline__ void add(const Place& place, const Sides& at, u32 cols, u32 part, float (&sums)[8][2][4]) {
        const u32 units = min(8u, cols / U::UNIT - 8 * part);
        const i8 *w_at = place.levels + at.weights_at(), *x_at = place.levels + at.inputs_at();
        const u32 row = at.row(), input = at.inputs + at.input();
        constexpr u32 PER = 32 / U::UNIT, STEPS = 8 / PER;
        u32 w[4], x[4];
        load_matrices(w, w_at);
        load_matrices(x, x_at);
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) {
            if (step * PER >= units) break;
            i32 p[PER][2][4];
#pragma unroll
            for (u32 k = 0; k < PER; k++) {
#pragma unroll
                for (u32 j = 0; j < 2; j++) {
                    if constexpr (PER == 1) {
                        multiply32(p[k][j], w, x[2 * j], x[2 * j + 1], SMALL_INTEGER);
                    } else {
                        multiply16(p[k][j], w[2 * k], w[2 * k + 1], x[2 * j + k], SMALL_INTEGER);
                    }
                }
            }
            // The next step's are on their way while these sums are made. Nothing else of it is: registers would not suffice.
            __syncwarp();
            if (step + 1 < STEPS) {
                load_matrices(w, w_at + 32 * (step + 1));
                load_matrices(x, x_at + 32 * (step + 1));
            }
            float2 a[2];
#pragma unroll
            for (u32 j = 0; j < 2; j++) a[j] = *(const float2*)(place.scales[step] + input + 8 * j);
#pragma unroll
            for (u32 k = 0; k < PER; k++) {
                const u32 q = step * PER + k;
                const float d[2] = {place.scales[q][row], place.scales[q][row + 8]};
#pragma unroll
                for (u32 j = 0; j < 2; j++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        const float scale = i % 2 ? a[j].y : a[j].x;
                        float& sum = sums[q][j][i];
                        float next = fma_(d[i / 2] * scale, small_integer(p[k][j][i]), sum);
                        if constexpr (U::MINS) {
                            next = fma_(place.mins[q][row + i / 2 * 8] * scale, place.mins[step][input + 8 * j + i % 2], next);
                        }
                        // With 16 values to a unit the row may have an odd number of them.
                        if (PER == 1 || q < units) sum = next;
                    }
                }
            }
        }
    }
};

// Units of 256 values, as the file has them.
template <class U> struct ManyLarge {
    static constexpr u32 PART = U::UNIT;
    static constexpr bool AHEAD = !U::MINS;
    static constexpr u32 SIDES = AHEAD ? 160 : 144;
    struct Place {
        alignas(16) i8 levels[SIDES * STRIDE];
        // Of rows: integer scales of each 16 values, and minimums; of inputs: sums of each 16.
        alignas(16) i8 scales[SIDES][16];
        alignas(16) u8 mins[U::MINS ? SIDES : 1][32];
        float d[SIDES][2];
    };

    static __device__ __forceinline__ void bring_weights(Place& place, const u8* w, const Sides& at, u32 rows, u32 cols, u32 part) {
        const u64 row_bytes = (u64)(cols / U::UNIT) * U::BYTES;
#pragma unroll 1
        for (u32 row = thread_anew() / WARP; row < at.rows; row += MANY / WARP) {
            const u8* b = w + min(at.first_row + row, rows - 1) * row_bytes + (u64)part * U::BYTES;
            i32 words[2], s[2];
            const u32 first = U::piece(b, lane(), words, s);
            i8* to = place.levels + row * STRIDE + first;
            if constexpr (U::APART == 4) {
                *(int2*)to = int2{words[0], words[1]};
            } else {
                *(i32*)to = words[0];
                *(i32*)(to + U::APART) = words[1];
            }
            if (first % 16 == 0) {
                place.scales[row][first / 16] = (i8)s[0];
                if constexpr (U::APART >= 16) place.scales[row][(first + U::APART) / 16] = (i8)(U::ONE_SCALE ? s[0] : s[1]);
            }
            if constexpr (U::MINS) {
                if (lane() < 8) {
                    i32 one, other;
                    U::mins(b, lane(), one, other);
                    place.mins[row][2 * lane()] = (u8)one;
                    place.mins[row][2 * lane() + 1] = (u8)other;
                }
            }
            if (lane() == 0) {
                float d, d_min = 0.0f;
                U::scales(b, d, d_min);
                place.d[row][0] = d;
                place.d[row][1] = d_min;
            }
        }
    }

    static __device__ __forceinline__ void fetch_weights(const u8* w, const Sides& at, u32 rows, u32 cols, u32 part) {
        const u64 row_bytes = (u64)(cols / U::UNIT) * U::BYTES;
        // Sectors of a unit, wherever it begins.
        constexpr u32 SECTORS = (U::BYTES + 30) / 32 + 1, AT_ONCE = WARP / SECTORS;
#pragma unroll 1
        for (u32 row = thread_anew() / WARP * AT_ONCE + lane() / SECTORS; row < at.rows; row += MANY / WARP * AT_ONCE) {
            const u8* b = w + min(at.first_row + row, rows - 1) * row_bytes + (u64)part * U::BYTES;
            if (lane() < AT_ONCE * SECTORS) prefetch(b + min(lane() % SECTORS * 32, U::BYTES - 1));
        }
    }

    static __device__ __forceinline__ void bring_inputs(Place& place, const Integers& x, const Sides& at, const Group& group, u32 cols,
                                                        u32 part) {
        const u32 from = part * PART;
#pragma unroll 1
        for (u32 i = thread_anew(); i < group.count * 16; i += MANY) {
            const u32 t = i / 16, k = i % 16 * 16;
            bring16(place.levels + (at.inputs + t) * STRIDE + k, x.values + ((u64)group.input(t) * cols + from + k));
        }
        for (u32 t = thread_anew(); t < group.count; t += MANY) {
            const u64 first = (u64)group.input(t) * cols + from;
            bring4(&place.d[at.inputs + t][0], x.scales + first / 32);
            if constexpr (U::MINS) {
#pragma unroll
                for (u32 k = 0; k < 2; k++) bring16(place.mins[at.inputs + t] + 16 * k, (const u8*)(x.sums + first / 16) + 16 * k);
            }
        }
    }

    static __device__ __forceinline__ void add(const Place& place, const Sides& at, u32, u32 part, float (&sums)[8][2][4]) {
        const i8 *w_at = place.levels + at.weights_at(), *x_at = place.levels + at.inputs_at();
        const u32 row = at.row(), input = at.inputs + at.input();
        i32 p[2][4] = {};
#pragma unroll
        for (u32 step = 0; step < 8; step++) {
            u32 w[4], x[4];
            load_matrices(w, w_at + 32 * step);
            load_matrices(x, x_at + 32 * step);
            const char2 s[2] = {*(const char2*)(place.scales[row] + 2 * step), *(const char2*)(place.scales[row + 8] + 2 * step)};
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                i32 one[4], other[4];
                if constexpr (U::GROUP == 32) {
                    multiply32(one, w, x[2 * j], x[2 * j + 1], 0);
                } else {
                    multiply16(one, w[0], w[1], x[2 * j], 0);
                    multiply16(other, w[2], w[3], x[2 * j + 1], 0);
                }
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    p[j][i] += s[i / 2].x * one[i];
                    if constexpr (U::GROUP != 32) p[j][i] += s[i / 2].y * other[i];
                }
            }
        }
        float now[2][4], mins[2][4];
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 r = row + i / 2 * 8, t = input + 8 * j + i % 2;
                const float a = place.d[t][0];
                now[j][i] = place.d[r][0] * a;
                if constexpr (U::MINS) {
                    i32 m = 0;
#pragma unroll
                    for (u32 k = 0; k < 4; k++) {
                        const i32 four = *(const i32*)(place.mins[r] + 4 * k);
                        m = __dp2a_lo(*(const i32*)(place.mins[t] + 8 * k), four, m);
                        m = __dp2a_hi(*(const i32*)(place.mins[t] + 8 * k + 4), four, m);
                    }
                    mins[j][i] = -(float)m;
                }
            }
        }
#pragma unroll
        for (u32 q = 0; q < 8; q++) {
            if (q != part % 8) continue;
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float& sum = sums[q][j][i];
                    sum = fma_(now[j][i], (float)p[j][i], sum);
                    if constexpr (U::MINS) {
                        sum = fma_(place.d[row + i / 2 * 8][1] * place.d[input + 8 * j + i % 2][0], mins[j][i], sum);
                    }
                }
            }
        }
    }
};

template <class P>
__device__ __forceinline__ void many(typename P::Place& place, const u8* w, const Group& group, const Integers& x, float* y, u32 rows,
                                     u32 cols, float scale, u32 act, float divisor) {
    Sides at(group.count);
    if (at.first_row >= rows) return;
    float sums[8][2][4] = {};
    const u32 parts = (cols + P::PART - 1) / P::PART;
    if (P::AHEAD) P::bring_inputs(place, x, at, group, cols, 0);
#pragma unroll 1
    for (u32 part = 0; part < parts; part++) {
        const bool more = part + 1 < parts;
        if (part > 0) __syncthreads();
        if (!P::AHEAD) P::bring_inputs(place, x, at, group, cols, part);
        P::bring_weights(place, w, at, rows, cols, part);
        arrived();
        __syncthreads();
        if (more) P::fetch_weights(w, at, rows, cols, part + 1);
        if (P::AHEAD) {
            at.turn();
            if (more) P::bring_inputs(place, x, at, group, cols, part + 1);
            at.turn();
        }
        if (at.works) P::add(place, at, cols, part, sums);
        if (P::AHEAD) at.turn();
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 t = at.input() + 8 * j + i % 2, row = at.first_row + at.row() + i / 2 * 8;
            const float sum = join_parts(sums, j, i);
            if (t < group.count && row < rows) y[(u64)(group.begin + t) * rows + row] = acted(sum * scale, act, divisor);
        }
    }
}

// For entry e of group g, whose input is tokens[e], y[e * rows + r] = act(scale * (row r of weights[g]) · x). The entries of group g
// are starts[g] to starts[g + 1], at most GROUP_INPUTS. Grid (rows / 32, groups), block MANY.
//
// Without `weights` there is one matrix, `matrix`, and entry e's input is e, one of `entries`: a group are GROUP_INPUTS of them.
#define MANY_KERNEL(name, P)                                                                                                     \
    KERNEL __launch_bounds__(MANY, 2) many_##name(const u64* weights, const u8* matrix, const u32* starts, const u32* tokens,    \
                                                  u32 entries, const i8* values, const float* scales, const i16* sums, float* y, \
                                                  u32 rows, u32 cols, float scale, u32 act, float divisor) {                     \
        __shared__ P::Place place;                                                                                               \
        follow();                                                                                                                \
        Group group{GROUP_INPUTS * blockIdx.y, GROUP_INPUTS, tokens};                                                            \
        if (weights) {                                                                                                           \
            matrix = (const u8*)__ldg(weights + blockIdx.y);                                                                     \
            group.begin = __ldg(starts + blockIdx.y);                                                                            \
            entries = __ldg(starts + blockIdx.y + 1);                                                                            \
        }                                                                                                                        \
        group.count = min(entries - group.begin, GROUP_INPUTS);                                                                  \
        many<P>(place, matrix, group, Integers{values, scales, sums}, y, rows, cols, scale, act, divisor);                       \
    }
