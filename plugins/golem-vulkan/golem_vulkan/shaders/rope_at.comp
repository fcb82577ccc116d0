#version 460
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;  // before anything that asks for the size
#include "common.glsl"
#include "reduce.glsl"
#include "turn.glsl"
#include "forms.glsl"
// HEADS heads of one column, one after another: normed (if NORMED), their pairs turned by where the column is on their
// axes; four components to a thread.
layout(constant_id = 1) const uint NEIGHBOURS = 0;
layout(constant_id = 2) const uint NORMED = 0;
layout(constant_id = 3) const uint FORM = 0;  // float32 or fragments
layout(constant_id = 4) const uint HEADS = 1;
layout(constant_id = 5) const uint TOGETHER = 0;  // the workgroup is one subgroup, which holds a head in fours
layout(push_constant) uniform P {
  uint64_t x, at, y, rows, pairs, weight;
  uint dim, block, blocks;  // components of a head, of a block of pairs, and how many blocks
  uint x_stride, at_stride, y_stride;
  float eps;
} p;

// A pair's turns for a step on its axis, in parts of 12 bits, and the axis.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Pairs { vec4 v[]; };

float part_of(float x) { return x - round(x); }

// Cosine and sine of at * (f.x + f.y + f.z) turns: the products of parts of 12 bits are exact, so whole turns are
// taken off them without an error.
vec2 direction(float at, vec3 f) {
  float high = uintBitsToFloat(floatBitsToUint(at) & 0xfffff000u), low = at - high;
  float turns = part_of(high * f.x) + part_of(high * f.y) + part_of(low * f.x) + (low * f.y + at * f.z);
  return cos_sin(uint(int(round(part_of(turns) * 16777216.0)) * 256));
}

// How far component i is turned.
vec2 direction_of(uint i, F1 at) {
  uint half_ = p.block / 2, r = i % p.block, j = NEIGHBOURS != 0 ? r / 2 : r % half_;
  vec4 pair = Pairs(p.pairs).v[i / p.block * half_ + j];
  return direction(at.v[floatBitsToUint(pair.w)], pair.xyz);
}

// Component i of the head, turned.
float turned_by(uint i, vec2 t) {
  uint half_ = p.block / 2;
  bool first = NEIGHBOURS != 0 ? i % 2 == 0 : i % p.block < half_;
  uint other = NEIGHBOURS != 0 ? i ^ 1u : first ? i + half_ : i - half_;
  return first ? head[i] * t.x - head[other] * t.y : head[other] * t.y + head[i] * t.x;
}

// Whether a subgroup has a head, and every invocation four components of it, each beside that which it is turned with:
// then heads stay in registers, and nothing is waited for but memory.
const bool ALONE = NEIGHBOURS != 0 && TOGETHER != 0 && ALIGNED != 0;

void turn_alone(uint column, F1 at) {
  uint i4 = gl_LocalInvocationID.x, most = p.block * p.blocks;
  bool there = 4 * i4 < p.dim;
  vec2 t[2];
  [[unroll]] for (uint e = 0; e < 2; ++e) t[e] = 4 * i4 + 2 * e < most ? direction_of(4 * i4 + 2 * e, at) : vec2(1.0, 0.0);
  vec4 by = there && p.weight != 0 ? A4(p.weight).v[i4] : vec4(1.0);
  [[unroll]] for (uint h = 0; h < HEADS; ++h) {
    uint start = (gl_WorkGroupID.x * HEADS + h) * p.dim;
    vec4 x = there ? A4(p.x + uint64_t(column) * p.x_stride + 4 * start).v[i4] : vec4(0.0);
    if (NORMED != 0) x *= inversesqrt(subgroupAdd(dot(x, x)) / float(p.dim) + p.eps);
    x *= by;
    x = vec4(x.x * t[0].x - x.y * t[0].y, x.x * t[0].y + x.y * t[0].x, x.z * t[1].x - x.w * t[1].y, x.z * t[1].y + x.w * t[1].x);
    if (there && FORM == 3) write_fragments(p.y, column, gl_NumWorkGroups.x * HEADS * p.dim, start / 4 + i4, x);
    else if (there) A4(p.y + uint64_t(column) * p.y_stride + 4 * start).v[i4] = x;
  }
}

void main() {
  uint column = gl_WorkGroupID.y, most = p.block * p.blocks;
  if (beyond(p.rows, column)) return;
  F1 at = F1(p.at + uint64_t(column) * p.at_stride);
  if (ALONE) {
    turn_alone(column, at);
    return;
  }
  bool once = p.dim <= 4 * gl_WorkGroupSize.x;  // every head's components find the same directions
  vec2 t[4];
  for (uint h = 0; h < HEADS; ++h) {
    uint start = (gl_WorkGroupID.x * HEADS + h) * p.dim;
    if (h != 0) barrier();
    load_head(p.x + uint64_t(column) * p.x_stride + 4 * start, p.dim, NORMED != 0, p.weight, p.eps);
    for (uint i4 = gl_LocalInvocationID.x; 4 * i4 < p.dim; i4 += gl_WorkGroupSize.x) {
      vec4 x = vec4(0.0);
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        uint i = 4 * i4 + e;
        bool own = NEIGHBOURS == 0 || e % 2 == 0;  // of neighbours the second is turned by what the first is
        if (own && i < most && (h == 0 || !once)) t[e] = direction_of(i, at);
        if (i < p.dim) x[e] = i < most ? turned_by(i, t[own ? e : e - 1]) : head[i];
      }
      if (FORM == 3) write_fragments(p.y, column, gl_NumWorkGroups.x * HEADS * p.dim, start / 4 + i4, x);
      else write_floats(p.y + uint64_t(column) * p.y_stride + 4 * start, p.dim, i4, x);
    }
  }
}
