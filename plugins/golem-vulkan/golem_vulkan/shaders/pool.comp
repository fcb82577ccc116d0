#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// One row for each conversation: the mean of its columns, its first or its last.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HOW = 0;  // 0 mean, 1 first, 2 last
layout(push_constant) uniform P {
  uint64_t x, y, runs;
  uint n, x_stride, y_stride;
} p;

void main() {
  uint run = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
  if (beyond(p.runs, run) || i >= p.n) return;
  uint first = first_of(p.runs, run), end = end_of(p.runs, run);
  float sum = 0.0;
  if (HOW == 0) {
    for (uint t = first; t < end; ++t) sum += F1(p.x + uint64_t(t) * p.x_stride).v[i];
    sum /= float(end - first);
  } else {
    sum = F1(p.x + uint64_t(HOW == 1 ? first : end - 1) * p.x_stride).v[i];
  }
  F1(p.y + uint64_t(run) * p.y_stride).v[i] = sum;
}
