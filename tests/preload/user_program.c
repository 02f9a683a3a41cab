/* SPDX-License-Identifier: Apache-2.0 */
/* A program that calls one function of what it is linked with, and exits with its result. */
int user_run(int count);
int early_result(void);

int main(void) {
  return USER_FUNCTION;
}
