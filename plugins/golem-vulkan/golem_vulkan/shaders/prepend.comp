#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The numbers before those of each column, one to a thread, through the columns of a conversation in order.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, y, past, runs, columns;
  uint n, skipped, channels;  // numbers before; of a column's own those that are not among its last n
  uint from_first;            // before position 0 stands the first step
  uint x_stride, y_stride;
} p;

void main() {
  uint run = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
  if (beyond(p.runs, run) || i >= p.n) return;
  uint first = first_of(p.runs, run), end = end_of(p.runs, run);
  float past = F1(p.past + 4ul * share_of(p.runs, run) * p.n).v[i];
  if (p.from_first != 0 && position_of(p.runs, run) == 0)
    past = F1(p.x + uint64_t(first) * p.x_stride).v[i % p.channels];
  for (uint t = first; t < end; ++t) {
    F1(p.y + uint64_t(t) * p.y_stride).v[i] = past;
    past = F1(p.x + uint64_t(t) * p.x_stride).v[p.skipped + i];
    uint share = share_of(p.columns, t);
    if (share != NOWHERE) F1(p.past + 4ul * share * p.n).v[i] = past;
  }
}
