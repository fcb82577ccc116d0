#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "delta_chunks.glsl"
// The gated delta rule for one head of one conversation, column after column.  LANES threads share a column of the
// state (dk entries); they keep it in registers throughout.  The state lies as (slots, heads, dv, dk).
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint EACH = 8;   // entries of a column that a thread has: dk = LANES * EACH, or less
layout(constant_id = 3) const uint MOST_STEPS = 0xffffffff;  // of a run; delta_chunks.comp has longer ones
layout(push_constant) uniform P {
  uint64_t q, k, v, decay, beta, y, state, runs, columns;
  uint key_heads, heads, dk, dv;
  uint q_stride, k_stride, v_stride, decay_stride, beta_stride, y_stride;
  float scale;
} p;

void main() {
  uint run = gl_WorkGroupID.z, h = gl_WorkGroupID.y;
  if (beyond(p.runs, run)) return;
  uint lane = gl_LocalInvocationID.x % LANES;
  uint j = gl_WorkGroupID.x * (gl_WorkGroupSize.x / LANES) + gl_LocalInvocationID.x / LANES;
  bool inside = j < p.dv;
  uint share = share_of(p.runs, run), first = first_of(p.runs, run), n = end_of(p.runs, run) - first;
  if (by_chunks(p.columns, first, first + n, MOST_STEPS)) return;
  uint64_t state = p.state + 4ul * (uint64_t(share * p.heads + h) * p.dv + j) * p.dk;
  uint key_start = (h % p.key_heads) * p.dk;
  float s[EACH];
  [[unroll]] for (uint i = 0; i < EACH; ++i) {
    uint at = lane + i * LANES;
    s[i] = inside && at < p.dk ? F1(state).v[at] : 0.0;
  }
  for (uint t = first; t < first + n; ++t) {
    uint64_t q = p.q + uint64_t(t) * p.q_stride, k = p.k + uint64_t(t) * p.k_stride;
    float fade = exp(F1(p.decay + uint64_t(t) * p.decay_stride).v[h]), seen = 0.0, key[EACH];
    [[unroll]] for (uint i = 0; i < EACH; ++i) {
      uint at = lane + i * LANES;
      key[i] = at < p.dk ? F1(k).v[key_start + at] : 0.0;
      s[i] *= fade;
      seen += s[i] * key[i];
    }
    for (uint o = LANES / 2; o > 0; o >>= 1) seen += subgroupShuffleXor(seen, o);
    float value = inside ? F1(p.v + uint64_t(t) * p.v_stride).v[h * p.dv + j] : 0.0;
    float change = F1(p.beta + uint64_t(t) * p.beta_stride).v[h] * (value - seen), out_ = 0.0;
    [[unroll]] for (uint i = 0; i < EACH; ++i) {
      uint at = lane + i * LANES;
      s[i] += key[i] * change;
      out_ += at < p.dk ? s[i] * F1(q).v[key_start + at] : 0.0;
    }
    for (uint o = LANES / 2; o > 0; o >>= 1) out_ += subgroupShuffleXor(out_, o);
    if (inside && lane == 0) F1(p.y + uint64_t(t) * p.y_stride).v[h * p.dv + j] = out_ * p.scale;
    share = share_of(p.columns, t);
    if (share != NOWHERE) {
      state = p.state + 4ul * (uint64_t(share * p.heads + h) * p.dv + j) * p.dk;
      [[unroll]] for (uint i = 0; i < EACH; ++i) {
        uint at = lane + i * LANES;
        if (inside && at < p.dk) F1(state).v[at] = s[i];
      }
    }
  }
}
