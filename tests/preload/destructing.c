/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that lets the program go on inside its destructor: the loader's lock is held there. */
void plugin_ends(void);

__attribute__((destructor)) static void end(void) {
  plugin_ends();
}
