/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that lets the program go on inside its constructor: the loader's lock is held there. */
void plugin_constructs(void);

__attribute__((constructor)) static void construct(void) {
  plugin_constructs();
}
