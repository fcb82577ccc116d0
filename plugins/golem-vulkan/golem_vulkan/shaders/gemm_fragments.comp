#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "fragments.glsl"
#include "forms.glsl"
#include "activations.glsl"
// Products of rows of a matrix with many columns, both as fragments of float16 (`fragments.glsl`): a workgroup has
// TILE_COLUMNS x TILE_ROWS results, a subgroup COLUMNS x ROWS of them, which it keeps to itself; nothing is shared but
// the caches.  Of the matrix, fragments of `STRIP` sixteens of rows take turns, so that a subgroup finds its own in a row.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TILE_COLUMNS = 96;
layout(constant_id = 2) const uint TILE_ROWS = 128;
layout(constant_id = 3) const uint COLUMNS = 48;
layout(constant_id = 4) const uint ROWS = 64;
layout(constant_id = 5) const uint KIND = 0;  // what is done with results, behind the sum with an addend
layout(constant_id = 6) const uint FORM = 0;  // in which they are written: float32, or fragments
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F2 { vec2 v[]; };
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t bias, addend, factor;  // what every column has added; rows that are added, and that results are multiplied by
  uint outputs, blocks;           // rows of the matrix, and units of 32 entries in each
  uint y_stride;                  // of fragments from sixteen rows to the sixteen after them
  uint addend_stride, factor_stride;
  float by;                       // what sums are multiplied by
} p;
const uint STRIP = 4;  // as `lowering/wide.py` has it
const uint ACROSS = COLUMNS / 16, DOWN = ROWS / 16;

// Two results of a column, from a row of the matrix on.  What is read for those that are not there is thrown away, so
// that nothing waits for a branch.
vec2 finished(uint column, uint row, uint count, vec2 x) {
  uint64_t c = min(column, count - 1);
  uint at = 4 * (min(row, p.outputs - 1) & ~1u);
  if (p.bias != 0) x += F2(p.bias + at).v[0];
  if (p.addend != 0) x += F2(p.addend + c * p.addend_stride + at).v[0];
  x = vec2(activate(KIND, x.x, 0.0, 0.0), activate(KIND, x.y, 0.0, 0.0));
  return p.factor != 0 ? x * F2(p.factor + c * p.factor_stride + at).v[0] : x;
}

void put_floats(uint column, uint row, uint count, vec2 x) {
  if (column < count && row < p.outputs) {
    uint64_t y = p.y + uint64_t(column) * p.y_stride + 4 * row;
    if (row + 1 < p.outputs) F2(y).v[0] = x;
    else F1(y).v[0] = x.x;
  }
}

uint halves_of(vec2 x) { return packHalf2x16(clamp(x / HALF_SCALE, -HALF_MOST, HALF_MOST)); }

// What lies in a matrix of sums for a column and the one eight after it, each of four rows; of neighbours one takes
// the first eight rows, the other the second, so that every invocation writes 16 bytes.
void put_fragment(uint column, uint row, uint count, uvec4 mine) {
  bool odd = (gl_SubgroupInvocationID & 1) != 0;
  uvec2 theirs = uvec2(subgroupShuffleXor(odd ? mine.x : mine.y, 1), subgroupShuffleXor(odd ? mine.z : mine.w, 1));
  uvec4 unit = odd ? uvec4(theirs.x, mine.y, theirs.y, mine.w) : uvec4(mine.x, theirs.x, mine.z, theirs.y);
  if (column < count && row < p.outputs)
    U4(p.y + uint64_t(column / 16) * p.y_stride + row / 16 * 512).v[column % 8 * 4 + row % 16 / 4 + (odd ? 2 : 0)] = unit;
}

// Without a loop: entries of a matrix that were chosen at run time would drive all of them out of the registers.
void put(SUMS sums, uint column, uint row, uint count) {
  vec2 a = finished(column, row, count, vec2(sums[0], sums[1]) * p.by);
  vec2 b = finished(column, row + 8, count, vec2(sums[2], sums[3]) * p.by);
  vec2 c = finished(column + 8, row, count, vec2(sums[4], sums[5]) * p.by);
  vec2 d = finished(column + 8, row + 8, count, vec2(sums[6], sums[7]) * p.by);
  if (FORM == 3) {
    put_fragment(column, row, count, uvec4(halves_of(a), halves_of(b), halves_of(c), halves_of(d)));
  } else {
    put_floats(column, row, count, a);
    put_floats(column, row + 8, count, b);
    put_floats(column + 8, row, count, c);
    put_floats(column + 8, row + 8, count, d);
  }
}

void main() {
  uint lane = gl_SubgroupInvocationID, count = count_of(p.rows);
  if (gl_WorkGroupID.x * TILE_COLUMNS >= count) return;
  uint column0 = gl_WorkGroupID.x * TILE_COLUMNS + (gl_SubgroupID % (TILE_COLUMNS / COLUMNS)) * COLUMNS;
  uint row0 = gl_WorkGroupID.y * TILE_ROWS + (gl_SubgroupID / (TILE_COLUMNS / COLUMNS)) * ROWS;
  SUMS sum[ACROSS * DOWN];
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i) sum[i] = SUMS(0.0);
  uint64_t next = p.blocks * 1024ul;  // from sixteen rows to the sixteen after them
  uint64_t x = p.x + column0 / 16 * next + 16 * lane;
  uint64_t w = p.w + (row0 / 16 / STRIP * STRIP) * next + row0 / 16 % STRIP * 512 + 16 * lane;
  for (uint b = 0; b < p.blocks; ++b) {
    [[unroll]] for (uint half_ = 0; half_ < 2; ++half_) {
      LEFT a[ACROSS];
      RIGHT c[DOWN];
      [[unroll]] for (uint i = 0; i < ACROSS; ++i) a[i] = left(U4(x + i * next).v[0]);
      [[unroll]] for (uint j = 0; j < DOWN; ++j) c[j] = right(U4(w + j * 512).v[0]);
      [[unroll]] for (uint j = 0; j < DOWN; ++j)
        [[unroll]] for (uint i = 0; i < ACROSS; ++i) sum[i * DOWN + j] = coopMatMulAdd(a[i], c[j], sum[i * DOWN + j]);
      x += 512;
      w += STRIP * 512;
    }
  }
  [[unroll]] for (uint i = 0; i < ACROSS; ++i)
    [[unroll]] for (uint j = 0; j < DOWN; ++j)
      put(sum[i * DOWN + j], column0 + 16 * i + lane / 4, row0 + 16 * j + lane % 4 * 2, count);
}
