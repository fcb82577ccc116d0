// Matrices of 16 x 16 float16 as the 32 invocations of a subgroup hold them, so that each loads its share at once: of
// row g and then of row g + 8, for invocation 4 g + t, the entries 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of a row.  Whether
// a device holds them so is asked before these are used (`golem_vulkan/fragments.py`).
//
// A fragment is 512 bytes.  Since a product doesn't care for the order in which it sums, the four entries of a row that
// an invocation has may be any: in rows and weights they are 4 t to 4 t + 3.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require

#define LEFT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

LEFT left(uvec4 x) {
  LEFT a;
  [[unroll]] for (uint e = 0; e < 4; ++e) {
    f16vec2 pair = unpackFloat2x16(x[e]);
    a[2 * e] = pair.x;
    a[2 * e + 1] = pair.y;
  }
  return a;
}

RIGHT right(uvec4 x) {
  RIGHT a;
  [[unroll]] for (uint e = 0; e < 4; ++e) {
    f16vec2 pair = unpackFloat2x16(x[e]);
    a[2 * e] = pair.x;
    a[2 * e + 1] = pair.y;
  }
  return a;
}
