// Where a ring of (slots, heads, positions) keeps what it has of a position, `dim` entries: as float16, or (BYTES) as Q8_0
// blocks of 32, first the bytes of all positions of a head, then their scales, float16.
layout(constant_id = 10) const uint BYTES = 0;

struct Ring { uint64_t rows, scales; uint positions, dim; };   // of one head of a slot

Ring ring_of(uint64_t base, uint slot, uint heads, uint h, uint positions, uint dim) {
  uint64_t each = BYTES != 0 ? dim + dim / 16 : 2 * dim;
  uint64_t rows = base + uint64_t(slot * heads + h) * positions * each;
  return Ring(rows, rows + uint64_t(positions) * dim, positions, dim);
}

uint64_t ring_row(Ring r, uint position) {
  return r.rows + uint64_t(position % r.positions) * (BYTES != 0 ? r.dim : 2 * r.dim);
}

uint64_t ring_scales(Ring r, uint position) { return r.scales + uint64_t(position % r.positions) * (r.dim / 16); }

// Entries 8 i to 8 i + 7 of a position: four pairs of float16, or eight bytes and their scale.
uvec4 ring_load(Ring r, uint position, uint i) {
  if (BYTES == 0) return U4(ring_row(r, position)).v[i];
  return uvec4(U2(ring_row(r, position)).v[i], uint(U16(ring_scales(r, position)).v[i / 4]), 0);
}

vec4 low_of(uvec4 x) {
  if (BYTES == 0) return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
  return vec4(unpack8(int(x.x))) * unpackHalf2x16(x.z).x;
}

vec4 high_of(uvec4 x) {
  if (BYTES == 0) return vec4(unpackHalf2x16(x.z), unpackHalf2x16(x.w));
  return vec4(unpack8(int(x.y))) * unpackHalf2x16(x.z).x;
}
