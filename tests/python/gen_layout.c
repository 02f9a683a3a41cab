/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the row of python_rows.h for the interpreter whose headers it is compiled against; with an argument the
 * row of python_lists.c.
 *
 *   gcc -I/usr/include/python3.11 -o gen_layout tests/python/gen_layout.c && ./gen_layout
 *
 * tests/python/run does that for every version whose headers are installed and compares the output with
 * the table, and with what 3.13 and later publish.
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_interpframe.h"
#elif PY_VERSION_HEX >= 0x030b0000
#undef HAVE_STD_ATOMIC
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif

#include "internal/pycore_pystate.h"
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#endif

#define PUT(field, type, member) printf(" ." #field " = %zu,", offsetof(type, member))

#if PY_VERSION_HEX >= 0x030b0000
typedef _PyInterpreterFrame frame_type;
#else
typedef PyFrameObject frame_type;
#endif

static void put_frame(void) {
#if PY_VERSION_HEX >= 0x030d0000
  printf(" .frames = NT_PYTHON_DIRECT,");
  PUT(thread_frame, PyThreadState, current_frame);
  PUT(frame_back, frame_type, previous);
  PUT(frame_code, frame_type, f_executable);
  PUT(frame_at, frame_type, instr_ptr);
  PUT(frame_owner, frame_type, owner);
#elif PY_VERSION_HEX >= 0x030b0000
  printf(" .frames = NT_PYTHON_CFRAME,");
  PUT(thread_frame, PyThreadState, cframe);
  PUT(cframe_frame, _PyCFrame, current_frame);
  PUT(frame_back, frame_type, previous);
  PUT(frame_code, frame_type, f_code);
  PUT(frame_at, frame_type, prev_instr);
  PUT(frame_owner, frame_type, owner);
  printf(" .frame_size = %zu,",
         offsetof(PyFrameObject, _f_frame_data) + offsetof(frame_type, localsplus));
#else
  printf(" .frames = NT_PYTHON_OBJECTS,");
  printf(" .unit = %d,", PY_VERSION_HEX >= 0x030a0000 ? 2 : 1);
  PUT(thread_frame, PyThreadState, frame);
  PUT(frame_back, frame_type, f_back);
  PUT(frame_code, frame_type, f_code);
  PUT(frame_at, frame_type, f_lasti);
  printf(" .frame_size = %zu,", sizeof(frame_type));
#endif
}

static void put_code(void) {
#if PY_VERSION_HEX >= 0x030c0000
  PUT(code_version, PyCodeObject, co_version);
#endif
#if PY_VERSION_HEX >= 0x030b0000
  printf(" .lines = NT_PYTHON_LINES_3_11,");
  PUT(code_name, PyCodeObject, co_qualname);
  PUT(code_table, PyCodeObject, co_linetable);
  PUT(code_first_traceable, PyCodeObject, _co_firsttraceable);
  PUT(code_bytes, PyCodeObject, co_code_adaptive);
  PUT(code_size, PyCodeObject, co_code_adaptive);
#else
  PUT(code_name, PyCodeObject, co_name);
#if PY_VERSION_HEX >= 0x030a0000
  printf(" .lines = NT_PYTHON_LINES_3_10,");
  PUT(code_table, PyCodeObject, co_linetable);
#else
  printf(" .lines = NT_PYTHON_LINES_3_8,");
  PUT(code_table, PyCodeObject, co_lnotab);
#endif
  printf(" .code_size = %zu,", sizeof(PyCodeObject));
#endif
  PUT(code_file, PyCodeObject, co_filename);
  PUT(code_first_line, PyCodeObject, co_firstlineno);
}

static void put_text(void) {
  PyASCIIObject text;
  unsigned bits;
  memset(&text, 0, sizeof text);
  text.state.kind = 1;
  memcpy(&bits, &text.state, sizeof bits);
  printf(" .text_kind = %d,", __builtin_ctz(bits));
  PUT(text_length, PyASCIIObject, length);
  PUT(text_hash, PyASCIIObject, hash);
  PUT(text_state, PyASCIIObject, state);
  printf(" .text_ascii = %zu,", sizeof(PyASCIIObject));
  printf(" .text_compact = %zu,", sizeof(PyCompactUnicodeObject));
  PUT(bytes_length, PyVarObject, ob_size);
  PUT(bytes_data, PyBytesObject, ob_sval);
}

static void put_lists(void) {
  PUT(interp_next, PyInterpreterState, next);
#if PY_VERSION_HEX >= 0x030b0000
  PUT(interp_threads, PyInterpreterState, threads.head);
  PUT(thread_native, PyThreadState, native_thread_id);
#else
  PUT(interp_threads, PyInterpreterState, tstate_head);
#endif
#if PY_VERSION_HEX >= 0x030c0000
  PUT(interp_gil, PyInterpreterState, ceval.gil);
#else
  PUT(runtime_gil, _PyRuntimeState, ceval.gil);
#endif
  PUT(gil_holder, struct _gil_runtime_state, last_holder);
  PUT(gil_locked, struct _gil_runtime_state, locked);
  PUT(thread_prev, PyThreadState, prev);
  PUT(thread_next, PyThreadState, next);
  PUT(thread_interp, PyThreadState, interp);
  PUT(thread_id, PyThreadState, thread_id);
  printf(" },\n");
}

int main(int argc, char **argv) {
  (void)argv;
  printf("{ .version = 0x%04x,", PY_VERSION_HEX >> 16);
  if (argc > 1) {
    put_lists();
    return 0;
  }
  put_frame();
  put_code();
  put_text();
  printf(" },\n");
  return 0;
}
