#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "common.glsl"
#include "forms.glsl"
#include "activations.glsl"
#include "formats.glsl"
// Products of a matrix with many columns on cooperative matrices: a workgroup has TILE_COLUMNS x TILE_ROWS results, a
// subgroup COLUMNS x ROWS of them.  Columns come as float16, weights are decoded to float16 on the way into shared
// memory, sums are float32.  Where there are too few tiles to fill a device, teams of subgroups have a share of each
// row's units and the same tile; their sums are brought together at the end.  With EXPERTS a tile's columns are those
// that chose one expert, as `order` brought them together.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TILE_COLUMNS = 128;
layout(constant_id = 2) const uint TILE_ROWS = 128;
layout(constant_id = 3) const uint COLUMNS = 64;
layout(constant_id = 4) const uint ROWS = 64;
layout(constant_id = 5) const uint SUBGROUP = 32;
layout(constant_id = 6) const uint EXPERTS = 0;  // 1: a column's one row for each expert, 2: a row of its own for each
layout(constant_id = 7) const uint SHARES = 1;
layout(constant_id = 9) const uint KIND = 0;     // what is done with results
layout(constant_id = 10) const uint FORM = 0;    // in which they are written: float32 or float16
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t extra;         // a bias, or the order of the choices
  uint wh, ws, wd;
  uint outputs, blocks;   // rows of the matrix and units in each
  uint x_stride, y_stride;
  uint capacity;          // columns that there is room for
  uint chosen, most_tiles;
} p;
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

const uint STEP = 32;                 // entries of a row at a time
const uint WIDTH = STEP / 8 + 1;      // uvec4 of a row in shared memory; one more keeps rows on different banks
const uint ACROSS = COLUMNS / 16, DOWN = ROWS / 16;
const uint SUBGROUPS = (TILE_COLUMNS / COLUMNS) * (TILE_ROWS / ROWS);   // of a team
const uint TEAM = SUBGROUP * SUBGROUPS;
const uint LOADS = (TILE_COLUMNS * 4 + TEAM - 1) / TEAM;
const uint ROOM = (TILE_COLUMNS + TILE_ROWS) * WIDTH, EDGE = 64;        // uvec4: of a team, and of 16 x 16 sums
shared uvec4 room[SHARES * (ROOM > SUBGROUPS * EDGE ? ROOM : SUBGROUPS * EDGE)];

// What a thread takes of a unit of 32 weights, one of PIECES, and how it goes into shared memory.
#if defined(F16)
const uint PIECES = 4;
#define Taken uvec4
Taken take(Weights w, uint u, uint piece) { return U4(w.q).v[4 * u + piece]; }
void stage(uint row, uint piece, Taken t) { room[row + piece] = t; }
#elif defined(FLOATS)
const uint PIECES = 1;
struct Taken { vec4 four[8]; };
Taken take(Weights w, uint u, uint piece) {
  Taken t;
  [[unroll]] for (uint k = 0; k < 8; ++k) t.four[k] = fetch_floats(w, u, k);
  return t;
}
void stage(uint row, uint piece, Taken t) {
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    vec4 first = t.four[2 * k], second = t.four[2 * k + 1];
    room[row + k] = uvec4(packHalf2x16(first.xy), packHalf2x16(first.zw), packHalf2x16(second.xy),
      packHalf2x16(second.zw));
  }
}
#else
const uint PIECES = 1;
#define Taken Unit
Taken take(Weights w, uint u, uint piece) { return fetch(w, u); }
void stage(uint row, uint piece, Taken t) {
  [[unroll]] for (uint k = 0; k < 4; ++k) room[row + k] = uvec4(halves_of(t, 2 * k), halves_of(t, 2 * k + 1));
}
#endif
const uint UNITS = (TILE_ROWS * PIECES + TEAM - 1) / TEAM;

uint tile_start, tile_end;   // columns, or places in the order

// Which choice (or column) stands at a place.
uint choice_at(uint place) {
  place = min(place, tile_end - 1);
  return EXPERTS == 0 ? place : U1(p.extra + 16ul * (p.most_tiles + 1)).v[place];
}

uint64_t input_of(uint place) {
  uint choice = choice_at(place);
  if (EXPERTS == 0) return p.x + uint64_t(choice) * p.x_stride;
  uint64_t row = p.x + uint64_t(choice / p.chosen) * p.x_stride;
  return EXPERTS == 2 ? row + 64ul * p.blocks * (choice % p.chosen) : row;
}

uint64_t result_of(uint place) {
  uint choice = choice_at(place);
  if (EXPERTS == 0) return p.y + uint64_t(choice) * p.y_stride;
  return p.y + uint64_t(choice / p.chosen) * p.y_stride + (FORM == 0 ? 4ul : 2ul) * p.outputs * (choice % p.chosen);
}

// Four results of a place, from row `row` on.
void put(uint place, uint row, vec4 x) {
  if (place >= tile_end || row >= p.outputs) return;
  if (EXPERTS == 0 && p.extra != 0) x += read_row(p.extra, p.outputs, row / 4);
  x = activate4(KIND, x, 0.0, 0.0);
  if (FORM == 0) write_floats(result_of(place), p.outputs, row / 4, x);
  else write_halves(result_of(place), row / 4, x);
}

void main() {
  uint count = count_of(p.rows);
  uint share = gl_SubgroupID / SUBGROUPS, member = gl_SubgroupID % SUBGROUPS;
  uint tid = member * SUBGROUP + gl_SubgroupInvocationID;
  // workgroups of the same rows of the matrix come one after another, and find them in the caches
  uint row0 = (EXPERTS == 0 ? gl_WorkGroupID.y : gl_WorkGroupID.x) * TILE_ROWS, first_row = 0;
  if (EXPERTS == 0) {
    tile_start = gl_WorkGroupID.x * TILE_COLUMNS;
    tile_end = count;
    if (tile_start >= count) return;
  } else {
    if (gl_WorkGroupID.y >= U1(p.extra).v[0]) return;
    uvec4 tile = U4(p.extra + 16).v[gl_WorkGroupID.y];
    first_row = tile.x * p.outputs;
    tile_start = tile.y;
    tile_end = tile.y + tile.z;
  }
  uint my_column = (member % (TILE_COLUMNS / COLUMNS)) * COLUMNS, my_row = (member / (TILE_COLUMNS / COLUMNS)) * ROWS;
  uint columns = share * ROOM, weights = columns + TILE_COLUMNS * WIDTH;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  SUMS sum[ACROSS * DOWN];
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i) sum[i] = SUMS(0.0);

  uint64_t inputs[LOADS];
  [[unroll]] for (uint i = 0; i < LOADS; ++i) inputs[i] = input_of(tile_start + (tid + i * TEAM) / 4);
  uint starts[UNITS];
  [[unroll]] for (uint i = 0; i < UNITS; ++i)
    starts[i] = (first_row + min(row0 + (tid + i * TEAM) / PIECES, p.outputs - 1)) * p.blocks;
  uvec4 ahead[LOADS];   // of the step to come, asked for while the one at hand is multiplied
  Taken units[UNITS];

#define ASK(b) \
  [[unroll]] for (uint i = 0; i < UNITS; ++i) \
    if (tid + i * TEAM < TILE_ROWS * PIECES) units[i] = take(w, starts[i] + (b), (tid + i * TEAM) % PIECES); \
  [[unroll]] for (uint i = 0; i < LOADS; ++i) ahead[i] = U4(inputs[i]).v[4 * (b) + ((tid + i * TEAM) & 3)];

  if (share < p.blocks) { ASK(share) }
  for (uint step = 0; step < p.blocks; step += SHARES) {   // in the last there may be no unit for a share
    uint b = step + share;
    barrier();
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
      uint e = tid + i * TEAM;
      if (e < TILE_COLUMNS * 4) room[columns + (e / 4) * WIDTH + (e & 3)] = ahead[i];
    }
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
      uint e = tid + i * TEAM;
      if (e < TILE_ROWS * PIECES) stage(weights + (e / PIECES) * WIDTH, e % PIECES, units[i]);
    }
    barrier();
    if (b + SHARES < p.blocks) { ASK(b + SHARES) }
    if (b >= p.blocks) continue;
    [[unroll]] for (uint k = 0; k < STEP / 16; ++k) {
      LEFT a[ACROSS];
      [[unroll]] for (uint i = 0; i < ACROSS; ++i)
        coopMatLoad(a[i], room, columns + (my_column + i * 16) * WIDTH + k * 2, WIDTH,
          gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0; j < DOWN; ++j) {
        RIGHT c;
        coopMatLoad(c, room, weights + (my_row + j * 16) * WIDTH + k * 2, WIDTH,
          gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < ACROSS; ++i) sum[i * DOWN + j] = coopMatMulAdd(a[i], c, sum[i * DOWN + j]);
      }
    }
  }

  bool whole = tile_start + TILE_COLUMNS <= p.capacity && row0 + TILE_ROWS <= p.outputs;
  if (EXPERTS == 0 && SHARES == 1 && KIND == 0 && FORM == 0 && p.extra == 0 && whole) {
    [[unroll]] for (uint i = 0; i < ACROSS; ++i)
      [[unroll]] for (uint j = 0; j < DOWN; ++j) {
        SUMS result = sum[i * DOWN + j] * HALF_SCALE;
        uint column = tile_start + my_column + i * 16, row = row0 + my_row + j * 16;
        coopMatStore(result, F1(p.y + uint64_t(column) * p.y_stride).v, row, p.y_stride / 4,
          gl_CooperativeMatrixLayoutRowMajor);
      }
    return;
  }
  [[unroll]] for (uint i = 0; i < ACROSS; ++i)
    [[unroll]] for (uint j = 0; j < DOWN; ++j) {
      barrier();
      coopMatStore(sum[i * DOWN + j], room, gl_SubgroupID * EDGE, 4, gl_CooperativeMatrixLayoutRowMajor);
      barrier();
      for (uint e = share * TEAM + tid; e < SUBGROUPS * EDGE; e += SHARES * TEAM) {
        uint of = e / EDGE, column = tile_start + (of % (TILE_COLUMNS / COLUMNS)) * COLUMNS + i * 16 + e % EDGE / 4;
        vec4 x = vec4(0);
        [[unroll]] for (uint s = 0; s < SHARES; ++s) x += uintBitsToFloat(room[s * SUBGROUPS * EDGE + e]);
        put(column, row0 + (of / (TILE_COLUMNS / COLUMNS)) * ROWS + j * 16 + e % 4 * 4, x * HALF_SCALE);
      }
    }
}
