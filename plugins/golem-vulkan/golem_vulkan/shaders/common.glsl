// What every kernel shares: addresses as typed buffers, the rows of a pass, sums over a workgroup, and the forms in
// which results are written.
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(buffer_reference, std430, buffer_reference_align = 16) buffer U4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer U1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer U16 { uint16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 1) buffer U8 { uint8_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer H1 { float16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer F1 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer F4 { vec4 v[]; };  // rows may start anywhere

// A row set of the pass: how many rows, and of each its token, its position, its slot, its index among the columns,
// where its conversation begins among them and where it ends, the share of recurrent states (of a column where they go
// after it, of a conversation where they are before it), the last position that it sees, and the number of its
// conversation.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Rows {
  uint count;
  uint unused[7];
  uint facts[];
};
const uint NOWHERE = 0xffffffffu;  // in place of a share
uint count_of(uint64_t rows) { return Rows(rows).count; }
uint token_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i]; }
uint position_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 1]; }
uint slot_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 2]; }
uint index_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 3]; }
uint first_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 4]; }
uint end_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 5]; }
uint share_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 6]; }
uint last_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 7]; }
uint run_of(uint64_t rows, uint i) { return Rows(rows).facts[9 * i + 8]; }

// Whether there is no such row.  Of the first one nobody waits for the count: there is room for it in any case.
bool beyond(uint64_t rows, uint i) { return i > 0 && i >= count_of(rows); }
