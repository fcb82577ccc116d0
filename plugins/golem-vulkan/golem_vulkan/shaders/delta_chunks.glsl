// What the kernels of the gated delta rule in chunks share: STEPS columns of a conversation at a time, and which runs
// of columns they are for.
const uint STEPS = 8;
const uint FACTORS = 20;  // numbers for a column of a chunk and a head: see delta_factors.comp

layout(buffer_reference, std430, buffer_reference_align = 16) buffer A4 { vec4 v[]; };

// Whether a run goes by chunks: it is long, and nobody takes its columns back one by one.
bool by_chunks(uint64_t columns, uint first, uint end, uint most_steps) {
  return end - first > most_steps && share_of(columns, first) == NOWHERE;
}

// Four of a head's entries of a column's row, zeros where there are none.
vec4 four_at(uint64_t row, uint head_at, uint at, uint dk, bool there, bool aligned) {
  if (!there || 4 * at >= dk) return vec4(0.0);
  if (aligned) return A4(row).v[head_at / 4 + at];
  F1 x = F1(row + 4ul * (head_at + 4 * at));
  return vec4(x.v[0], x.v[1], x.v[2], x.v[3]);
}
