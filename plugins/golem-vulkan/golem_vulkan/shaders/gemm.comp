#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "common.glsl"
#include "forms.glsl"
#include "formats.glsl"
// Products of a matrix with many columns on cooperative matrices: a workgroup has TILE_COLUMNS x TILE_ROWS results, a
// subgroup COLUMNS x ROWS of them.  Columns come as float16, weights are decoded to float16 on the way into shared
// memory, sums are float32.  With EXPERTS a tile's columns are those that chose one expert, as `order` brought them
// together.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TILE_COLUMNS = 128;
layout(constant_id = 2) const uint TILE_ROWS = 128;
layout(constant_id = 3) const uint COLUMNS = 64;
layout(constant_id = 4) const uint ROWS = 64;
layout(constant_id = 5) const uint SUBGROUP = 32;
layout(constant_id = 6) const uint EXPERTS = 0;  // 1: a column's one row for each expert, 2: a row of its own for each
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t extra;         // a bias, or the order of the choices
  uint wh, ws, wd;
  uint outputs, blocks;   // rows of the matrix and units in each
  uint x_stride, y_stride;
  uint capacity;          // columns that there is room for
  uint chosen, most_tiles;
} p;
const uint STEP = 32;                 // entries of a row at a time
const uint WIDTH = STEP / 8 + 1;      // uvec4 of a row in shared memory; one more keeps rows on different banks
const uint ACROSS = COLUMNS / 16, DOWN = ROWS / 16;
const uint SIZE = SUBGROUP * (TILE_COLUMNS / COLUMNS) * (TILE_ROWS / ROWS);
const uint LOADS = (TILE_COLUMNS * 4 + SIZE - 1) / SIZE;
const uint UNITS = (TILE_ROWS + SIZE - 1) / SIZE;
shared uvec4 columns[TILE_COLUMNS * WIDTH];
shared uvec4 weights[TILE_ROWS * WIDTH];
shared float edge[SIZE / SUBGROUP * 256];

#ifdef FLOATS
struct Taken { vec4 four[8]; };
Taken take(Weights w, uint u) {
  Taken t;
  [[unroll]] for (uint k = 0; k < 8; ++k) t.four[k] = fetch_floats(w, u, k);
  return t;
}
#else
#define Taken Unit
#define take fetch
#endif

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
  return p.y + uint64_t(choice / p.chosen) * p.y_stride + 4ul * p.outputs * (choice % p.chosen);
}

void main() {
  uint tid = gl_LocalInvocationID.x, count = count_of(p.rows);
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
  uint my_column = (gl_SubgroupID % (TILE_COLUMNS / COLUMNS)) * COLUMNS;
  uint my_row = (gl_SubgroupID / (TILE_COLUMNS / COLUMNS)) * ROWS;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sum[ACROSS * DOWN];
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i)
    sum[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);

  uvec4 ahead[LOADS];
  uint64_t inputs[LOADS];
  [[unroll]] for (uint i = 0; i < LOADS; ++i) {
    uint e = tid + i * SIZE;
    inputs[i] = input_of(tile_start + e / 4);
    ahead[i] = U4(inputs[i]).v[e & 3];
  }
  Taken units[UNITS];   // of the step to come, asked for while the one at hand is multiplied
  uint starts[UNITS];
  [[unroll]] for (uint i = 0; i < UNITS; ++i) {
    starts[i] = (first_row + min(row0 + tid + i * SIZE, p.outputs - 1)) * p.blocks;
    if (tid + i * SIZE < TILE_ROWS) units[i] = take(w, starts[i]);
  }
  for (uint b = 0; b < p.blocks; ++b) {
    barrier();
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
      uint e = tid + i * SIZE;
      if (e < TILE_COLUMNS * 4) columns[(e / 4) * WIDTH + (e & 3)] = ahead[i];
    }
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
      uint e = tid + i * SIZE;
      if (e >= TILE_ROWS) break;
      [[unroll]] for (uint k = 0; k < 4; ++k) {
#ifdef FLOATS
        vec4 first = units[i].four[2 * k], second = units[i].four[2 * k + 1];
        weights[e * WIDTH + k] = uvec4(packHalf2x16(first.xy), packHalf2x16(first.zw), packHalf2x16(second.xy),
          packHalf2x16(second.zw));
#else
        weights[e * WIDTH + k] = uvec4(halves_of(units[i], 2 * k), halves_of(units[i], 2 * k + 1));
#endif
      }
    }
    barrier();
    if (b + 1 < p.blocks) {
      [[unroll]] for (uint i = 0; i < UNITS; ++i)
        if (tid + i * SIZE < TILE_ROWS) units[i] = take(w, starts[i] + b + 1);
      [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint e = tid + i * SIZE;
        ahead[i] = U4(inputs[i]).v[4 * (b + 1) + (e & 3)];
      }
    }
    [[unroll]] for (uint k = 0; k < STEP / 16; ++k) {
      coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[ACROSS];
      [[unroll]] for (uint i = 0; i < ACROSS; ++i)
        coopMatLoad(a[i], columns, (my_column + i * 16) * WIDTH + k * 2, WIDTH, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0; j < DOWN; ++j) {
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> c;
        coopMatLoad(c, weights, (my_row + j * 16) * WIDTH + k * 2, WIDTH, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < ACROSS; ++i) sum[i * DOWN + j] = coopMatMulAdd(a[i], c, sum[i * DOWN + j]);
      }
    }
  }

  [[unroll]] for (uint i = 0; i < ACROSS; ++i)
    [[unroll]] for (uint j = 0; j < DOWN; ++j) {
      uint column = tile_start + my_column + i * 16, row = row0 + my_row + j * 16;
      coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> result = sum[i * DOWN + j] * HALF_SCALE;
      if (EXPERTS == 0 && p.extra == 0 && column + 16 <= p.capacity && row + 16 <= p.outputs) {
        coopMatStore(result, F1(p.y + uint64_t(column) * p.y_stride).v, row, p.y_stride / 4,
          gl_CooperativeMatrixLayoutRowMajor);
      } else if (column < tile_end && row < p.outputs) {
        uint start = gl_SubgroupID * 256;
        subgroupBarrier();
        coopMatStore(result, edge, start, 16, gl_CooperativeMatrixLayoutRowMajor);
        subgroupBarrier();
        for (uint e = gl_SubgroupInvocationID; e < 256; e += SUBGROUP) {
          uint c = column + e / 16, r = row + e % 16;
          if (c >= tile_end || r >= p.outputs) continue;
          float bias = EXPERTS == 0 && p.extra != 0 ? F1(p.extra).v[r] : 0.0;
          F1(result_of(c)).v[r] = edge[start + e] + bias;
        }
      }
    }
}
