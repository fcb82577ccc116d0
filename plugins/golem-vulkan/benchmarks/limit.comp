#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "fragments.glsl"
// Nothing but products of 16 x 16 x 16: a subgroup multiplies the same ACROSS and DOWN matrices again and again.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ACROSS = 4;
layout(constant_id = 2) const uint DOWN = 4;
layout(push_constant) uniform P {
  uint64_t x, y;
  uint steps;
} p;

void main() {
  uint lane = gl_SubgroupInvocationID, g = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
  LEFT a[ACROSS];
  RIGHT c[DOWN];
  SUMS sum[ACROSS * DOWN];
  [[unroll]] for (uint i = 0; i < ACROSS; ++i) a[i] = left(U4(p.x).v[(g % 64 * 16 + i) * 32 + lane]);
  [[unroll]] for (uint j = 0; j < DOWN; ++j) c[j] = right(U4(p.x).v[(g % 64 * 16 + 8 + j) * 32 + lane]);
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i) sum[i] = SUMS(0.0);
  for (uint b = 0; b < p.steps; ++b)
    [[unroll]] for (uint j = 0; j < DOWN; ++j)
      [[unroll]] for (uint i = 0; i < ACROSS; ++i) sum[i * DOWN + j] = coopMatMulAdd(a[i], c[j], sum[i * DOWN + j]);
  float all = 0.0;
  [[unroll]] for (uint i = 0; i < ACROSS * DOWN; ++i)
    [[unroll]] for (uint e = 0; e < 8; ++e) all += sum[i][e];
  F1(p.y).v[g * 32 + lane] = all;
}
