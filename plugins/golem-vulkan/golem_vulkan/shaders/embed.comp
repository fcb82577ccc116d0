#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "formats.glsl"
// Rows of a table by the columns' tokens or positions, or by `chosen` ids of each column; one unit of 32 entries to a thread.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t w, y, rows, ids;
  uint wh, ws, wd;
  uint entries, blocks, width, stride;  // of the table; units of a row, its entries, and the bytes between results
  uint chosen, ids_stride;  // with none chosen, a stride says that rows go by position
} p;

void main() {
  uint part = p.chosen > 0 ? gl_WorkGroupID.y % p.chosen : 0;
  uint column = p.chosen > 0 ? gl_WorkGroupID.y / p.chosen : gl_WorkGroupID.y, b = gl_GlobalInvocationID.x;
  if (beyond(p.rows, column) || b >= p.blocks) return;
  uint64_t row = p.y + uint64_t(column) * p.stride;
  uint entry = p.chosen == 0 ? (p.ids_stride == 0 ? token_of(p.rows, column) : position_of(p.rows, column))
    : uint(max(F1(p.ids + uint64_t(column) * p.ids_stride).v[part], 0.0));
  uint u = min(entry, p.entries - 1) * p.blocks + b;
  row += 4ul * p.width * part;
  Weights w = planes(p.w, p.wh, p.ws, p.wd);
#ifndef FLOATS
  Unit t = fetch(w, u);
#endif
  for (uint k = 0; k < 8; ++k) {
#ifdef FLOATS
    vec4 x = fetch_floats(w, u, k);
#else
    vec4 x = four_of(t, k);
#endif
    uint i = 32 * b + 4 * k;
    for (uint j = 0; j < 4; ++j) if (i + j < p.width) F1(row).v[i + j] = x[j];
  }
}
