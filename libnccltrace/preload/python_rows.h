/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of the releases, as initialisers: offsets that the compiler knows cost a walk nothing.
 *
 * Each is the output of tests/python/gen_layout.c, which tests/python/run compares with the headers that
 * are installed. 3.13 and 3.14 are believed only where the interpreter publishes the very same.
 */
#ifndef NT_PYTHON_ROWS_H
#define NT_PYTHON_ROWS_H

#define NT_PYTHON_TEXT(ascii, compact)                                                             \
  .text_kind = 2, .text_length = 16, .text_hash = 24, .text_state = 32, .text_ascii = (ascii),     \
  .text_compact = (compact), .bytes_length = 16, .bytes_data = 32

#define NT_PYTHON_3_8_AND_3_9(hex)                                                                 \
  {                                                                                                \
    .version = (hex), .frames = NT_PYTHON_OBJECTS, .lines = NT_PYTHON_LINES_3_8, .unit = 1,        \
    .thread_frame = 24, .frame_back = 24, .frame_code = 32, .frame_at = 104, .frame_size = 368,    \
    .code_file = 104, .code_name = 112, .code_table = 120, .code_first_line = 40,                  \
    .code_size = 176, NT_PYTHON_TEXT(48, 72)                                                       \
  }

#define NT_PYTHON_3_10                                                                             \
  {                                                                                                \
    .version = 0x030a, .frames = NT_PYTHON_OBJECTS, .lines = NT_PYTHON_LINES_3_10, .unit = 2,      \
    .thread_frame = 24, .frame_back = 24, .frame_code = 32, .frame_at = 96, .frame_size = 360,     \
    .code_file = 104, .code_name = 112, .code_table = 120, .code_first_line = 40,                  \
    .code_size = 176, NT_PYTHON_TEXT(48, 72)                                                       \
  }

#define NT_PYTHON_3_11                                                                             \
  {                                                                                                \
    .version = 0x030b, .frames = NT_PYTHON_CFRAME, .lines = NT_PYTHON_LINES_3_11,                  \
    .thread_frame = 56, .cframe_frame = 8, .frame_back = 48, .frame_code = 32, .frame_at = 56,     \
    .frame_owner = 69, .frame_size = 120, .code_file = 112, .code_name = 128, .code_table = 136,   \
    .code_first_line = 72, .code_first_traceable = 168, .code_bytes = 184, .code_size = 184,       \
    NT_PYTHON_TEXT(48, 72)                                                                         \
  }

#define NT_PYTHON_3_12                                                                             \
  {                                                                                                \
    .version = 0x030c, .frames = NT_PYTHON_CFRAME, .lines = NT_PYTHON_LINES_3_11,                  \
    .thread_frame = 56, .cframe_frame = 0, .frame_back = 8, .frame_code = 0, .frame_at = 56,       \
    .frame_owner = 70, .frame_size = 120, .code_file = 112, .code_name = 128, .code_table = 136,   \
    .code_first_line = 68, .code_version = 92, .code_first_traceable = 176, .code_bytes = 192,     \
    .code_size = 192, NT_PYTHON_TEXT(40, 56)                                                       \
  }

#define NT_PYTHON_3_13                                                                             \
  {                                                                                                \
    .version = 0x030d, .frames = NT_PYTHON_DIRECT, .lines = NT_PYTHON_LINES_3_11,                  \
    .thread_frame = 72, .frame_back = 8, .frame_code = 0, .frame_at = 56, .frame_owner = 70,       \
    .code_file = 112, .code_name = 128, .code_table = 136, .code_first_line = 68,                  \
    .code_version = 92, .code_first_traceable = 184, .code_bytes = 200, .code_size = 200,          \
    NT_PYTHON_TEXT(40, 56)                                                                         \
  }

#define NT_PYTHON_3_14                                                                             \
  {                                                                                                \
    .version = 0x030e, .frames = NT_PYTHON_DIRECT, .lines = NT_PYTHON_LINES_3_11,                  \
    .thread_frame = 72, .frame_back = 8, .frame_code = 0, .frame_at = 56, .frame_owner = 74,       \
    .code_file = 112, .code_name = 128, .code_table = 136, .code_first_line = 68,                  \
    .code_version = 92, .code_first_traceable = 192, .code_bytes = 208, .code_size = 208,          \
    NT_PYTHON_TEXT(40, 56)                                                                         \
  }

#endif
