/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of the reduction operators. Integers wrap as on the GPU; 16-bit floats are widened to
 * float for each single operation and rounded to nearest even, as NCCL's kernels do on devices
 * without native support. Pure functions.
 */
#include <string.h>

#include "sim_nccl.h"

size_t sim_dtype_size(int dtype) {
  static const unsigned char size[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return dtype >= 0 && dtype < ncclNumTypes ? size[dtype] : 0;
}

static float bits_to_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof(f));
  return f;
}

static uint32_t float_to_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof(bits));
  return bits;
}

static float half_load(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  if (exponent == 0) {
    float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
  }
  exponent = exponent == 31 ? 255 : exponent + 112;
  return bits_to_float(sign | exponent << 23 | fraction << 13);
}

static uint16_t half_store(float f) {
  uint32_t bits = float_to_bits(f);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7e00;
  if (magnitude >= 0x477ff000) /* rounds to more than 65504 */
    return sign | 0x7c00;
  if (magnitude < 0x38800000) { /* subnormal: let the addition round */
    float scaled = bits_to_float(magnitude) + 0.5f;
    return (uint16_t)(sign | (float_to_bits(scaled) - 0x3f000000u));
  }
  magnitude += 0xc8000fff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | magnitude >> 13);
}

static float bf16_load(uint16_t h) {
  return bits_to_float((uint32_t)h << 16);
}

static uint16_t bf16_store(float f) {
  uint32_t bits = float_to_bits(f);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define SAME(x) (x)
#define COMBINE(op, a, b)                                                                          \
  ((op) == ncclProd  ? (a) * (b)                                                                   \
   : (op) == ncclMax ? ((a) > (b) ? (a) : (b))                                                     \
   : (op) == ncclMin ? ((a) < (b) ? (a) : (b))                                                     \
                     : (a) + (b))

/* type: in memory; wide: what is computed in. Unsigned arithmetic gives two's complement wrapping. */
#define DEFINE_TYPE(name, type, wide, load, store)                                                 \
  static void apply_##name(void *acc, const void *in, size_t count, int op) {                      \
    type *a = acc;                                                                                 \
    const type *b = in;                                                                            \
    for (size_t i = 0; i < count; i++) {                                                           \
      wide x = load(a[i]), y = load(b[i]);                                                         \
      a[i] = store((wide)COMBINE(op, x, y));                                                       \
    }                                                                                              \
  }                                                                                                \
  static void scale_##name(void *data, size_t count, double factor) {                              \
    type *a = data;                                                                                \
    for (size_t i = 0; i < count; i++)                                                             \
      a[i] = store((wide)((wide)load(a[i]) * (wide)factor));                                       \
  }                                                                                                \
  static void divide_##name(void *data, size_t count, int divisor) {                               \
    type *a = data;                                                                                \
    for (size_t i = 0; i < count; i++)                                                             \
      a[i] = store((wide)(load(a[i]) / (wide)divisor));                                            \
  }

#define STORE_I8(x) ((int8_t)(x))
#define STORE_U8(x) ((uint8_t)(x))
#define STORE_I32(x) ((int32_t)(x))
#define STORE_U32(x) ((uint32_t)(x))
DEFINE_TYPE(i8, int8_t, int, SAME, STORE_I8)
DEFINE_TYPE(u8, uint8_t, int, SAME, STORE_U8)
DEFINE_TYPE(i32, int32_t, int64_t, SAME, STORE_I32)
DEFINE_TYPE(u32, uint32_t, uint64_t, SAME, STORE_U32)
DEFINE_TYPE(i64, int64_t, int64_t, SAME, SAME)
DEFINE_TYPE(u64, uint64_t, uint64_t, SAME, SAME)
DEFINE_TYPE(f16, uint16_t, float, half_load, half_store)
DEFINE_TYPE(f32, float, float, SAME, SAME)
DEFINE_TYPE(f64, double, double, SAME, SAME)
DEFINE_TYPE(bf16, uint16_t, float, bf16_load, bf16_store)

static const struct {
  void (*apply)(void *acc, const void *in, size_t count, int op);
  void (*scale)(void *data, size_t count, double factor);
  void (*divide)(void *data, size_t count, int divisor);
} type_table[ncclNumTypes] = {
#define ROW(name)                                                                                  \
  { apply_##name, scale_##name, divide_##name }
    [ncclInt8] = ROW(i8),       [ncclUint8] = ROW(u8),      [ncclInt32] = ROW(i32),
    [ncclUint32] = ROW(u32),    [ncclInt64] = ROW(i64),     [ncclUint64] = ROW(u64),
    [ncclFloat16] = ROW(f16),   [ncclFloat32] = ROW(f32),   [ncclFloat64] = ROW(f64),
    [ncclBfloat16] = ROW(bf16), [ncclFloat8e4m3] = ROW(u8), [ncclFloat8e5m2] = ROW(u8),
};

void sim_reduce_apply(void *acc, const void *in, size_t count, int dtype, int op) {
  type_table[dtype].apply(acc, in, count, op);
}

void sim_reduce_scale(void *data, size_t count, int dtype, double factor) {
  type_table[dtype].scale(data, count, factor);
}

void sim_reduce_divide(void *data, size_t count, int dtype, int divisor) {
  type_table[dtype].divide(data, count, divisor);
}

double sim_reduce_read_scalar(const void *at, int dtype) {
  uint16_t half;
  switch (dtype) {
  case ncclFloat64:
    return *(const double *)at;
  case ncclFloat32:
    return (double)*(const float *)at;
  case ncclFloat16:
    memcpy(&half, at, sizeof(half));
    return (double)half_load(half);
  case ncclBfloat16:
    memcpy(&half, at, sizeof(half));
    return (double)bf16_load(half);
  case ncclInt64:
    return (double)*(const int64_t *)at;
  case ncclUint64:
    return (double)*(const uint64_t *)at;
  case ncclInt32:
    return (double)*(const int32_t *)at;
  case ncclUint32:
    return (double)*(const uint32_t *)at;
  case ncclInt8:
    return (double)*(const int8_t *)at;
  default:
    return (double)*(const uint8_t *)at;
  }
}
