#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Brings the choices of a pass together by expert: a choice is a column's `chosen` times its number plus a place among
// its experts.  One workgroup writes how many tiles of at most `tile` choices there are, then for each its expert, its
// first place in the order and its size, and then the order itself.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P {
  uint64_t ids, out_, rows;
  uint chosen, ids_stride, experts, tile, most_tiles;
} p;
const uint MOST = 2048;
shared uint start[MOST];   // of an expert's choices in the order, then how many were placed
shared uint placed[MOST];

void main() {
  uint tid = gl_LocalInvocationID.x, size = gl_WorkGroupSize.x, n = count_of(p.rows) * p.chosen;
  for (uint e = tid; e < p.experts; e += size) start[e] = placed[e] = 0;
  barrier();
  for (uint i = tid; i < n; i += size)
    atomicAdd(placed[uint(F1(p.ids + uint64_t(i / p.chosen) * p.ids_stride).v[i % p.chosen])], 1);
  barrier();
  if (tid == 0) {
    uint at = 0, tiles = 0;
    for (uint e = 0; e < p.experts; ++e) {
      start[e] = at;
      for (uint first = 0; first < placed[e]; first += p.tile) {
        U4(p.out_ + 16).v[tiles] = uvec4(e, at + first, min(p.tile, placed[e] - first), 0);
        ++tiles;
      }
      at += placed[e];
    }
    U1(p.out_).v[0] = tiles;
  }
  barrier();
  for (uint e = tid; e < p.experts; e += size) placed[e] = 0;
  barrier();
  uint64_t order = p.out_ + 16ul * (p.most_tiles + 1);
  for (uint i = tid; i < n; i += size) {
    uint e = uint(F1(p.ids + uint64_t(i / p.chosen) * p.ids_stride).v[i % p.chosen]);
    U1(order).v[start[e] + atomicAdd(placed[e], 1)] = i;
  }
}
