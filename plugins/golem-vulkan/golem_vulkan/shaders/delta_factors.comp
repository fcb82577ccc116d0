#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "delta_chunks.glsl"
// What the gated delta rule needs of a chunk of columns besides the state, for every head that reads a key head (the WY
// form of arXiv:2412.06464).  With g the decays' logarithms and D[i][j] = exp(g[j + 1] + ... + g[i]) for i >= j, else 0:
//   T = inverse(1 + strictly lower(beta[i] k[i].k[j] D[i][j])) beta[j],  M[i][j] = q[i].k[j] D[i][j] scale.
// Row i of T, row i of M, exp(g[0] + ... + g[i]) and exp(g[i + 1] + ...) are the numbers of column i, entry j of a row
// in the place i ^ j.
layout(local_size_x_id = 0) in;                 // STEPS * STEPS
layout(constant_id = 1) const uint PIECES = 32; // fours of a key's entries
layout(constant_id = 2) const uint MOST_STEPS = 0;
layout(constant_id = 8) const uint ALIGNED = 0;
layout(push_constant) uniform P {
  uint64_t q, k, decay, beta, factors, runs, columns;
  uint key_heads, heads, dk;
  uint q_stride, k_stride, decay_stride, beta_stride, factor_stride;
  float scale;
} p;
const uint PITCH = PIECES + 1;
shared vec4 keys[STEPS * PITCH], queries[STEPS * PITCH];
shared float gates[2 * STEPS], lower[STEPS * (STEPS + 1)];   // g, then beta

// What the first 2 * STEPS threads bring of a head; columns that aren't there leave the state as it is.
float gate(uint first, uint n, uint h) {
  uint step = gl_LocalInvocationID.x % STEPS;
  uint64_t t = first + step;
  if (h >= p.heads || step >= n) return 0.0;
  if (gl_LocalInvocationID.x < STEPS) return F1(p.decay + t * p.decay_stride).v[h];
  return gl_LocalInvocationID.x < 2 * STEPS ? F1(p.beta + t * p.beta_stride).v[h] : 0.0;
}

void main() {
  uint run = gl_WorkGroupID.z, key_head = gl_WorkGroupID.y, tid = gl_LocalInvocationID.x;
  if (beyond(p.runs, run)) return;
  uint start = first_of(p.runs, run), end = end_of(p.runs, run), first = start + gl_WorkGroupID.x * STEPS;
  if (first >= end || !by_chunks(p.columns, start, end, MOST_STEPS)) return;
  uint n = min(STEPS, end - first);
  float next = gate(first, n, key_head);
  for (uint e = tid; e < STEPS * PIECES; e += STEPS * STEPS) {
    uint step = e / PIECES, at = e % PIECES;
    uint64_t t = first + step;
    keys[step * PITCH + at] = four_at(p.k + t * p.k_stride, key_head * p.dk, at, p.dk, step < n, ALIGNED != 0);
    queries[step * PITCH + at] = four_at(p.q + t * p.q_stride, key_head * p.dk, at, p.dk, step < n, ALIGNED != 0);
  }
  barrier();
  uint i = tid / STEPS, j = tid % STEPS;
  float known = 0.0, found = 0.0;
  for (uint e = 0; e < PIECES; ++e) {
    vec4 key = keys[j * PITCH + e];
    known += dot(keys[i * PITCH + e], key);
    found += dot(queries[i * PITCH + e], key);
  }
  for (uint h = key_head; h < p.heads; h += p.key_heads) {
    barrier();
    if (tid < 2 * STEPS) gates[tid] = next;
    barrier();
    next = gate(first, n, h + p.key_heads);
    float fade = 0.0;
    for (uint m = j + 1; m <= i; ++m) fade += gates[m];
    fade = i < j ? 0.0 : exp(fade);
    lower[i * (STEPS + 1) + j] = i > j ? gates[STEPS + i] * known * fade : 0.0;
    barrier();
    uint64_t to = p.factors + uint64_t(first) * p.factor_stride + 4 * FACTORS * h;
    if (i < n) F1(to + i * p.factor_stride).v[STEPS + (i ^ j)] = found * fade * p.scale;
    if (tid < STEPS) {
      float column[STEPS], before = 0.0, behind = 0.0;
      [[unroll]] for (uint r = 0; r < STEPS; ++r) {
        column[r] = r == tid ? 1.0 : 0.0;
        if (r <= tid) before += gates[r];
        else behind += gates[r];
      }
      [[unroll]] for (uint c = 0; c < STEPS; ++c)
        [[unroll]] for (uint r = c + 1; r < STEPS; ++r) column[r] -= lower[r * (STEPS + 1) + c] * column[c];
      [[unroll]] for (uint r = 0; r < STEPS; ++r)
        if (r < n) F1(to + r * p.factor_stride).v[r ^ tid] = column[r] * gates[STEPS + tid];
      if (tid < n) {
        F1(to + tid * p.factor_stride).v[2 * STEPS] = exp(before);
        F1(to + tid * p.factor_stride).v[2 * STEPS + 1] = exp(behind);
      }
    }
  }
}
