#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Rows that lie as fragments: row i of the result comes from row index[i]; a thread has four entries.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t x, y, rows;
  uint blocks;  // units of a row
} p;

uint64_t place(uint row, uint i4) {
  return (uint64_t(row / 16) * 2 * p.blocks + i4 / 4) * 512 + (row % 8 * 4 + i4 % 4) * 16 + row / 8 % 2 * 8;
}

void main() {
  uint row = gl_WorkGroupID.y, i4 = gl_GlobalInvocationID.x;
  if (beyond(p.rows, row) || i4 >= 8 * p.blocks) return;
  U2(p.y + place(row, i4)).v[0] = U2(p.x + place(index_of(p.rows, row), i4)).v[0];
}
