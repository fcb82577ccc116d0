#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "keys.glsl"
#include "reduce.glsl"
// First look at the rows of which the largest entries are wanted: thread t of a row's `count` writes the largest key of
// the fours t, t + count, t + 2 count ... of entries; a workgroup its largest entry and the sum of the exponentials of
// what all of them lie below it.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, peaks, totals, without, rows;
  uint n, count, x_stride;
} p;
const uint LOWEST = 0xff800000u, TOGETHER = 4;

void main() {
  uint row = gl_WorkGroupID.y, first = gl_GlobalInvocationID.x;
  if (beyond(p.rows, row)) return;
  uint64_t x = p.x + uint64_t(row) * p.x_stride;
  uint peak = 0;
  float most = uintBitsToFloat(LOWEST), sum = 0.0;
  for (uint start = first; 4 * start < p.n; start += TOGETHER * p.count) {
    uvec4 key[TOGETHER];
    uint high = 0;
    [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
      uint i4 = start + i * p.count;
      key[i] = 4 * i4 < p.n ? four_keys(x, p.n, i4, p.without) : uvec4(0);
    }
    [[unroll]] for (uint i = 0; i < TOGETHER; ++i)
      high = max(high, max(max(key[i].x, key[i].y), max(key[i].z, key[i].w)));
    peak = max(peak, high);
    float top = max(most, uintBitsToFloat(bits_of(high)));
    if (top > uintBitsToFloat(LOWEST)) {
      sum *= exp(most - top);
      [[unroll]] for (uint i = 0; i < TOGETHER; ++i)
        [[unroll]] for (uint j = 0; j < 4; ++j) sum += exp(uintBitsToFloat(bits_of(key[i][j])) - top);
      most = top;
    }
  }
  U1(p.peaks).v[row * p.count + first] = peak;
  float top = workgroup_max(most);
  float total = workgroup_sum(most > uintBitsToFloat(LOWEST) ? sum * exp(most - top) : 0.0);
  if (gl_LocalInvocationID.x == 0)
    U2(p.totals).v[row * gl_NumWorkGroups.x + gl_WorkGroupID.x] = uvec2(floatBitsToUint(top), floatBitsToUint(total));
}
