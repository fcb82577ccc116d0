#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The `count` largest of a column's scores, equal ones in order of their index, and the softmax over them (SOFTMAX:
// over all of them, and 2: then divided by the chosen ones' sum).  A workgroup is one subgroup.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, ids, shares, rows;
  uint n, count, x_stride, ids_stride, shares_stride;
  uint over_all;
} p;
shared float score[4096];

void main() {
  uint column = gl_WorkGroupID.y, tid = gl_LocalInvocationID.x, size = gl_WorkGroupSize.x;
  if (beyond(p.rows, column)) return;
  uint64_t x = p.x + uint64_t(column) * p.x_stride;
  uint64_t ids = p.ids + uint64_t(column) * p.ids_stride, shares = p.shares + uint64_t(column) * p.shares_stride;
  for (uint i = tid; i < p.n; i += size) score[i] = F1(x).v[i];
  float top = 0.0, total = 0.0;
  for (uint k = 0; k < p.count; ++k) {
    float best = uintBitsToFloat(0xff800000u);
    uint at = 0xffffffffu;
    for (uint i = tid; i < p.n; i += size)
      if (at == 0xffffffffu || score[i] > best) { best = score[i]; at = i; }
    float most = subgroupMax(best);
    uint winner = min(subgroupMin(best == most ? at : 0xffffffffu), p.n - 1);  // among no numbers, the last
    if (k == 0) top = most;
    float e = exp(most - top);
    total += e;
    if (tid == winner % size) score[winner] = uintBitsToFloat(0xff800000u);
    if (tid == 0) {
      F1(ids).v[k] = float(winner);
      F1(shares).v[k] = e;
    }
  }
  if (p.over_all != 0) {
    float rest = 0.0;
    for (uint i = tid; i < p.n; i += size) rest += exp(score[i] - top);
    total += subgroupAdd(rest);
  }
  if (tid == 0)
    for (uint k = 0; k < p.count; ++k) F1(shares).v[k] /= total;
}
