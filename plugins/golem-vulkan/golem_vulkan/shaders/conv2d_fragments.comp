#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "forms.glsl"
#include "fragments.glsl"
// A convolution over a map of float16 rows: products of a matrix, whose rows come as fragments (`fragments.glsl`), with
// the squares around the places, whose numbers are read where they lie.  A workgroup has TILE_PLACES x TILE_ROWS
// results, a subgroup PLACES x ROWS of them.  Channels are whole sixteens, so that a fragment has one tap.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TILE_PLACES = 64;
layout(constant_id = 2) const uint TILE_ROWS = 96;
layout(constant_id = 3) const uint PLACES = 32;
layout(constant_id = 4) const uint ROWS = 48;
layout(push_constant) uniform P {
  uint64_t w, x, y, rows;
  uint64_t bias;
  uint first, last;        // of the rows of the matrix, those that are at hand
  uint outputs, blocks;    // rows of the matrix, and units of 32 entries in each
  uint height, width, channels, taps;
  uint x_stride, y_stride;
  float by;                // what sums are multiplied by
} p;
const uint ACROSS = PLACES / 16, DOWN = ROWS / 16;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F2 { vec2 v[]; };

void put_two(uint64_t y, uint at, uint row, uint count, vec2 x) {
  if (at < count && row < p.last) {
    bool both = row + 1 < p.last;
    if (p.bias != 0) x += vec2(F1(p.bias).v[row], both ? F1(p.bias).v[row + 1] : 0.0);
    y += 4ul * (at * p.outputs + row);
    if (both && p.outputs % 2 == 0) {
      F2(y).v[0] = x;
    } else {
      F1(y).v[0] = x.x;
      if (both) F1(y).v[1] = x.y;
    }
  }
}

// Without a loop: entries of a matrix that were chosen at run time would drive all of them out of the registers.
void put(SUMS sums, uint64_t y, uint at, uint row, uint count) {
  put_two(y, at, row, count, vec2(sums[0], sums[1]) * p.by);
  put_two(y, at, row + 8, count, vec2(sums[2], sums[3]) * p.by);
  put_two(y, at + 8, row, count, vec2(sums[4], sums[5]) * p.by);
  put_two(y, at + 8, row + 8, count, vec2(sums[6], sums[7]) * p.by);
}

void main() {
  uint lane = gl_SubgroupInvocationID, count = p.height * p.width, map = gl_WorkGroupID.z;
  if (beyond(p.rows, map)) return;
  uint place0 = gl_WorkGroupID.x * TILE_PLACES + (gl_SubgroupID % (TILE_PLACES / PLACES)) * PLACES;
  uint row0 = gl_WorkGroupID.y * TILE_ROWS + (gl_SubgroupID / (TILE_PLACES / PLACES)) * ROWS;
  SUMS sum[ACROSS * DOWN];
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i) sum[i] = SUMS(0.0);
  uint64_t x = p.x + uint64_t(map) * p.x_stride + lane % 4 * 8;
  uint64_t next = p.blocks * 1024ul, w = p.w + row0 / 16 * next + 16 * lane;
  ivec2 place[2 * ACROSS];   // column and row of each, less the reach of the square
  [[unroll]] for (uint i = 0; i < 2 * ACROSS; ++i) {
    uint at = min(place0 + 8 * i + lane / 4, count - 1);
    place[i] = ivec2(at % p.width, at / p.width) - int(p.taps / 2);
  }
  uint sixteens = p.channels / 16, taps = p.taps * p.taps;
  for (uint tap = 0; tap < taps; ++tap) {
    ivec2 step_ = ivec2(tap % p.taps, tap / p.taps);
    uint start[2 * ACROSS];
    bool inside[2 * ACROSS];
    [[unroll]] for (uint i = 0; i < 2 * ACROSS; ++i) {
      ivec2 at = place[i] + step_;
      inside[i] = at.x >= 0 && at.x < int(p.width) && at.y >= 0 && at.y < int(p.height);
      start[i] = inside[i] ? (uint(at.y) * p.width + uint(at.x)) * 2 * p.channels : 0;
    }
    for (uint k = 0; k < sixteens; ++k) {
      LEFT a[ACROSS];
      RIGHT c[DOWN];
      [[unroll]] for (uint i = 0; i < ACROSS; ++i) {
        uvec2 upper = U2(x + start[2 * i] + 32 * k).v[0], lower = U2(x + start[2 * i + 1] + 32 * k).v[0];
        a[i] = left(uvec4(inside[2 * i] ? upper : uvec2(0), inside[2 * i + 1] ? lower : uvec2(0)));
      }
      [[unroll]] for (uint j = 0; j < DOWN; ++j) c[j] = right(U4(w + j * next).v[0]);
      [[unroll]] for (uint j = 0; j < DOWN; ++j)
        [[unroll]] for (uint i = 0; i < ACROSS; ++i) sum[i * DOWN + j] = coopMatMulAdd(a[i], c[j], sum[i * DOWN + j]);
      w += 512;
    }
  }
  uint64_t y = p.y + uint64_t(map) * p.y_stride;
  [[unroll]] for (uint i = 0; i < ACROSS; ++i)
    [[unroll]] for (uint j = 0; j < DOWN; ++j)
      put(sum[i * DOWN + j], y, place0 + 16 * i + lane / 4, p.first + row0 + 16 * j + lane % 4 * 2, count);
}
