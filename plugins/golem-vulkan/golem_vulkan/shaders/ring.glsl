// Where a head's entries for a position lie in a ring of (slots, heads, length, dim) float16.
uint64_t ring_row(uint64_t base, uint slot, uint heads, uint h, uint length, uint dim, uint position) {
  return base + 2ul * dim * (uint64_t(slot * heads + h) * length + position % length);
}
